"""How often something may begin: at most so many times in any stretch of time.

The instants of all that has begun would be exact, and too many to keep. So they are kept in groups, at most a hundred of
them: a group counts as begun when its last one was. That never lets too many begin, and at most a hundredth too few.
"""

from bisect import bisect_right
from typing import NamedTuple, Optional

import msgspec

GROUPS = 100
SOON = 5_000  # ms: who comes no later than that for its instant gets one of the next, and others the last
KEPT = 600_000  # ms that an instant is kept for who does not come


class Rate(NamedTuple):
    most: int
    window: int  # ms

    @property
    def group(self) -> int:
        """How many count together."""
        return -(-self.most // GROUPS)

    @property
    def groups(self) -> int:
        """How many groups one window may hold."""
        return self.most // self.group


class Spending(msgspec.Struct):
    """What has begun at a rate."""

    most: int
    window: int
    ended: list[int] = []  # the last instant of each full group, oldest first: as many as a window may hold
    last: int = 0
    filled: int = 0  # of the group that is not full
    carried: int = 0  # what had begun at another rate,
    until: int = 0  # and counts until then
    plan: Optional["Spending"] = None  # what would have begun, if all came at the instants that they were told

    def take(self, rate: Rate, want: int, now: int, *, ahead: bool) -> tuple[list[int], int]:
        """The instants that are granted, and the next that is free."""
        if (self.most, self.window) != rate:
            self._change(rate, now)
        taken: list[int] = []
        while (at := self._next(rate, now)) <= now or ahead:
            if len(taken) == want:
                break
            taken.append(at)
            self._add(rate, at)
        return taken, self._next(rate, now)

    def reserve(self, rate: Rate, kept: int | None, now: int) -> int:
        """The instant of somebody who was told to come at `kept`, if that was so: now, or one to come.

        Only what has begun counts. So who comes late may begin if the rate lets it, and nobody waits for who never comes.
        """
        if (self.most, self.window) != rate:
            self._change(rate, now)
        free, planned = self._next(rate, now), self.plan is not None and self.plan.last > now
        if free <= now and (kept is not None or not planned):
            self._add(rate, now)
            return now
        if kept is not None and kept > now:
            return kept
        if kept is not None and planned and now - kept <= SOON:
            return free + now - kept
        if self.plan is None or not planned:
            self.plan = Spending(*rate, self.ended, self.last, self.filled, self.carried, self.until)
        [at], _ = self.plan.take(rate, 1, now, ahead=True)
        return at

    def over(self) -> int:
        """When nothing of it counts any more."""
        return max(self.last + self.window, self.until, 0 if self.plan is None else self.plan.over())

    def _next(self, rate: Rate, now: int) -> int:
        at = max(now, self.last)
        if self.filled:
            return at
        if at < self.until:
            groups = (rate.most - self.carried) // rate.group
            if groups > 0 and (free := self._free(groups, at)) < self.until:
                return free
            at = self.until
        return self._free(rate.groups, at)

    def _free(self, groups: int, at: int) -> int:
        """When a group may begin, if so many may be in one window."""
        return at if len(self.ended) < groups else max(at, self.ended[-groups] + self.window)

    def _add(self, rate: Rate, at: int) -> None:
        self.last, self.filled = at, self.filled + 1
        if self.filled == rate.group:
            self.ended, self.filled = [*self.ended, at][-rate.groups :], 0

    def _change(self, rate: Rate, now: int) -> None:
        """To another rate: what lies in its window counts as begun with the last of it, and for no longer than that window.

        So a rate of a minute in place of one of a day does not wait for the day to be over.
        """
        old, window = Rate(self.most, self.window), rate.window
        still = len(self.ended) - bisect_right(self.ended, now - window)
        used = still * old.group + self.filled if self.last > now - window else 0
        self.carried = used + (self.carried if now < self.until else 0)
        self.until = max(min(self.until, now + window), self.last + window) if self.carried else 0
        self.ended, self.filled = [], 0
        self.most, self.window = rate
