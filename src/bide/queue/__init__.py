"""The user's API: queues in two colours over whatever engine the URL names."""

from bide.engines.guard.hooks import Call, Hook
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.aio.task import AsyncTask
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.task import Task
from bide.queue.tasks.outcome import Bury, Retry, Snooze
from bide.queue.tasks.present import current
from bide.queue.travel import Handled
from bide.queue.twins import AsyncQueue, Queue

__all__ = [
    "AsyncDelivery",
    "AsyncQueue",
    "AsyncTask",
    "Bury",
    "Call",
    "Delivery",
    "Handled",
    "Hook",
    "Queue",
    "Retry",
    "Snooze",
    "Task",
    "current",
]
