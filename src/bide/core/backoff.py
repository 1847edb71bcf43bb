"""How long to wait before the next attempt."""

import functools
import random
from collections.abc import Callable
from typing import TypeAlias

from bide.core.times import duration_ms
from bide.errors import BadOption
from bide.types import Duration

Backoff: TypeAlias = Callable[[int], Duration]
"""From the number of the attempt that failed (1, 2, 3 …) to the wait before the next: seconds, a timedelta or text."""


class Spread:
    """Waits that are spread by chance, so that failures don't come back in step."""

    def __init__(self, plain: Callable[[int], int], cap: int, jitter: float, chance: Callable[[], float]) -> None:
        self._plain = plain
        self._cap = cap
        self._jitter = jitter
        self._chance = chance

    def __call__(self, attempt: int) -> float:
        """What would be above the cap goes as far below it: cutting it off would put half of the waits in step again."""
        wait = self._plain(attempt) * (1 + self._jitter * (2 * self._chance() - 1))
        return round(wait if wait <= self._cap else 2 * self._cap - wait) / 1000

    def plain(self, attempt: int) -> float:
        """What is spread: the same each time."""
        return self._plain(attempt) / 1000


def exponential(
    first: Duration = "1s", *, cap: Duration = "10m", jitter: float = 0.2, chance: Callable[[], float] = random.random
) -> Backoff:
    """Double the delay with each attempt, up to `cap`. `jitter` varies it, so that failures do not all return together."""
    first_ms, cap_ms = duration_ms(first, "first"), duration_ms(cap, "cap")
    if not 0 <= jitter <= 1:
        raise BadOption(f"jitter is {jitter}. Give a share of the wait, from 0 to 1.")
    return Spread(lambda attempt: min(cap_ms, first_ms << min(attempt - 1, 60)), cap_ms, jitter, chance)


def steps(*waits: Duration) -> Backoff:
    """Use the listed delays: `steps("1s", "30s", "10m")`. The last one repeats, so a single step is a fixed delay."""
    if not waits:
        raise BadOption('steps() needs at least one wait, e.g. steps("30s").')
    listed = [duration_ms(each, "wait") / 1000 for each in waits]
    return lambda attempt: listed[min(attempt, len(listed)) - 1]


def wait_ms(backoff: Backoff, attempt: int, *, by_chance: bool = True) -> int:
    """The wait after an attempt, in milliseconds; without chance it is the same each time, as far as bide knows."""
    wait = backoff.plain if isinstance(backoff, Spread) and not by_chance else backoff
    return duration_ms(wait(attempt), "the backoff's wait")


USUAL: Backoff = exponential()
"""Of a task that says nothing else."""

DEFAULT: Callable[[int], int] = functools.partial(wait_ms, USUAL)
"""The usual wait after an attempt, in milliseconds."""
