"""For tests of your application, with a queue whose clock you move, and for tests of engines, with the contract suite.

The pytest fixtures `bide_queue` and `bide_async_queue` are there as soon as bide is installed.
"""

from bide.clock import ManualClock
from bide.queue.travel import Handled

__all__ = ["Handled", "ManualClock"]
