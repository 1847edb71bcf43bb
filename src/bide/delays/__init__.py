"""Items that can be taken when their delay has gone by, in this process: a queue in both colours."""

from bide.delays.aio import AsyncDelayQueue
from bide.delays.base import Handle
from bide.delays.sync import DelayQueue

__all__ = ["AsyncDelayQueue", "DelayQueue", "Handle"]
