"""How long to wait before the next attempt."""

import random
from collections.abc import Callable
from typing import TypeAlias

from bide.core.when import MAX_DELAY_MS, duration_ms
from bide.errors import BadOption
from bide.types import Duration

Backoff: TypeAlias = Callable[[int], int]
"""From the number of the attempt that failed (1, 2, 3 …) to milliseconds."""


def exponential(
    first: Duration = "1s", *, cap: Duration = "10m", jitter: float = 0.2, chance: Callable[[], float] = random.random
) -> Backoff:
    """Double the wait each time, up to `cap`, and spread it by ± `jitter` so that failures don't come back in step."""
    first_ms, cap_ms = duration_ms(first, "first"), duration_ms(cap, "cap")
    if not 0 <= jitter <= 1:
        raise BadOption(f"jitter is {jitter}. Give a share of the wait, from 0 to 1.")

    def wait(attempt: int) -> int:
        plain = min(cap_ms, first_ms << min(attempt - 1, 60))
        return min(MAX_DELAY_MS, round(plain * (1 + jitter * (2 * chance() - 1))))

    return wait


def steps(*waits: Duration) -> Backoff:
    """Wait as listed, the last one for ever: `steps("1s", "30s", "10m")`. One step is a fixed wait."""
    if not waits:
        raise BadOption('steps() needs at least one wait, e.g. steps("30s").')
    listed = [duration_ms(each, "wait") for each in waits]
    return lambda attempt: listed[min(attempt, len(listed)) - 1]


DEFAULT: Backoff = exponential()
