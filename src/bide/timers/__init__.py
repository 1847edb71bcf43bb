"""Calls that come later, in this process: a hierarchical timing wheel."""

from bide.timers.timer import Timer
from bide.timers.wheel import TimerWheel

__all__ = ["Timer", "TimerWheel"]
