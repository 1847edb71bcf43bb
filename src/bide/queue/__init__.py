"""The user's API: queues in two colours over whatever engine the URL names."""

from bide.engines.guard.hooks import Call, Hook
from bide.queue.deliveries.aio import AsyncDelivery
from bide.queue.deliveries.sync import Delivery
from bide.queue.tasks.aio import AsyncTask
from bide.queue.tasks.outcome import Bury, Retry, Snooze
from bide.queue.tasks.present import current
from bide.queue.tasks.sync import Task
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
