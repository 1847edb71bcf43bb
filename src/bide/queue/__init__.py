"""The user's API: queues in two colours over whatever engine the URL names."""

from bide.engines.guard.hooks import Call, Hook
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.aio.locks import AsyncLock
from bide.queue.aio.results import AsyncTaskSent
from bide.queue.around import MessagesHandling, MessagesSending, SendingPart
from bide.queue.deliveries import current, current_batch
from bide.queue.events import (
    CallFailed,
    EngineCalled,
    Events,
    MessagePart,
    MessagesBegun,
    MessagesEnded,
    MessagesSent,
    subscribe,
)
from bide.queue.queues import AsyncQueue, Queue
from bide.queue.subscription import Subscription
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.locks import Lock
from bide.queue.sync.results import TaskSent
from bide.queue.task import AsyncBatchTask, AsyncKeepingTask, AsyncTask, BatchTask, KeepingTask, Task
from bide.queue.tasks.outcome import Bury, Failed, Retry, Snooze
from bide.queue.travel import Handled

__all__ = [
    "AsyncBatchTask",
    "AsyncDelivery",
    "AsyncKeepingTask",
    "AsyncLock",
    "AsyncQueue",
    "AsyncTask",
    "AsyncTaskSent",
    "BatchTask",
    "Bury",
    "Call",
    "CallFailed",
    "Delivery",
    "EngineCalled",
    "Events",
    "Failed",
    "Handled",
    "Hook",
    "KeepingTask",
    "Lock",
    "MessagePart",
    "MessagesBegun",
    "MessagesEnded",
    "MessagesHandling",
    "MessagesSending",
    "MessagesSent",
    "Queue",
    "Retry",
    "SendingPart",
    "Snooze",
    "Subscription",
    "Task",
    "TaskSent",
    "current",
    "current_batch",
    "subscribe",
]
