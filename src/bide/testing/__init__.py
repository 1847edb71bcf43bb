"""For tests: of your own code (a queue whose clock you turn), and of engines (the contract suite).

The pytest fixtures `bide_queue` and `bide_async_queue` are there as soon as bide is installed.
"""

from bide.clock import ManualClock
from bide.queue.travel import Handled

__all__ = ["Handled", "ManualClock"]
