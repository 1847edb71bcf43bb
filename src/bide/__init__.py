"""bide: delayed messages for Python. Give it a message and a time; it delivers when due, at least once, unless you cancel."""

import importlib
from typing import TYPE_CHECKING, Any

from bide.clock import Clock, ManualClock
from bide.core.backoff import Backoff, exponential, steps
from bide.core.codec import Codec
from bide.engines.base import Capabilities, Finding
from bide.errors import (
    BadBody,
    BadMessage,
    BadOption,
    BadTime,
    BadTopic,
    BadUrl,
    BideError,
    ConfigError,
    ConfirmTimeout,
    EngineError,
    Exists,
    LeaseLost,
    Locked,
    LockLost,
    MissingExtra,
    NoResult,
    OutcomeUnknown,
    PartlySent,
    QueueFull,
    ResultCancelled,
    ResultFailed,
    ResultNotKept,
    ResultPending,
    ResultUnknown,
    SchemaMismatch,
    TooLarge,
    Unavailable,
    UnknownEngine,
    Unsupported,
    WrongLoop,
)
from bide.types import (
    Attempt,
    CancelResult,
    Duration,
    Flushed,
    IfExists,
    Info,
    Outgoing,
    Page,
    Priority,
    Removed,
    Requeued,
    RescheduleResult,
    ScheduleInfo,
    Sent,
    Span,
    State,
    Stats,
    Where,
)

if TYPE_CHECKING:
    from bide.delays import AsyncDelayQueue, DelayQueue
    from bide.queue import (
        AsyncBatchTask,
        AsyncDelivery,
        AsyncKeepingTask,
        AsyncLock,
        AsyncQueue,
        AsyncTask,
        AsyncTaskSent,
        BatchTask,
        Bury,
        Call,
        Delivery,
        Failed,
        Handled,
        Hook,
        KeepingTask,
        Lock,
        Queue,
        Retry,
        Snooze,
        Task,
        TaskSent,
        current,
        current_batch,
    )
    from bide.timers import Timer, TimerWheel
    from bide.worker import Health, Middleware, Worker

__version__ = "0.1.0"

_ROOMS = {
    "AsyncDelayQueue": "bide.delays",
    "DelayQueue": "bide.delays",
    "Health": "bide.worker",
    "Middleware": "bide.worker",
    "Timer": "bide.timers",
    "TimerWheel": "bide.timers",
    "Worker": "bide.worker",
}


def __getattr__(name: str) -> Any:
    """Queues are loaded when one is first named: they bring asyncio, which alone takes half of the time to import."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room = importlib.import_module(_ROOMS.get(name, "bide.queue"))
    return globals().setdefault(name, getattr(room, name))


def __dir__() -> list[str]:
    """Also what is not loaded yet."""
    return sorted({*globals(), *__all__})


__all__ = [
    "AsyncBatchTask",
    "AsyncDelayQueue",
    "AsyncDelivery",
    "AsyncKeepingTask",
    "AsyncLock",
    "AsyncQueue",
    "AsyncTask",
    "AsyncTaskSent",
    "Attempt",
    "Backoff",
    "BadBody",
    "BadMessage",
    "BadOption",
    "BadTime",
    "BadTopic",
    "BadUrl",
    "BatchTask",
    "BideError",
    "Bury",
    "Call",
    "CancelResult",
    "Capabilities",
    "Clock",
    "Codec",
    "ConfigError",
    "ConfirmTimeout",
    "DelayQueue",
    "Delivery",
    "Duration",
    "EngineError",
    "Exists",
    "Failed",
    "Finding",
    "Flushed",
    "Handled",
    "Health",
    "Hook",
    "IfExists",
    "Info",
    "KeepingTask",
    "LeaseLost",
    "Lock",
    "LockLost",
    "Locked",
    "ManualClock",
    "Middleware",
    "MissingExtra",
    "NoResult",
    "OutcomeUnknown",
    "Outgoing",
    "Page",
    "PartlySent",
    "Priority",
    "Queue",
    "QueueFull",
    "Removed",
    "Requeued",
    "RescheduleResult",
    "ResultCancelled",
    "ResultFailed",
    "ResultNotKept",
    "ResultPending",
    "ResultUnknown",
    "Retry",
    "ScheduleInfo",
    "SchemaMismatch",
    "Sent",
    "Snooze",
    "Span",
    "State",
    "Stats",
    "Task",
    "TaskSent",
    "Timer",
    "TimerWheel",
    "TooLarge",
    "Unavailable",
    "UnknownEngine",
    "Unsupported",
    "Where",
    "Worker",
    "WrongLoop",
    "current",
    "current_batch",
    "exponential",
    "steps",
]
