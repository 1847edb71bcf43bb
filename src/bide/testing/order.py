"""In what order messages may come, and when a caller may be told to come back."""

from collections.abc import Iterable, Sequence
from itertools import combinations, product

from bide.testing.picture import Message, agree, insist


def check_order(taken: Sequence[Message], left: Iterable[Message]) -> None:
    """Within a topic and a priority, what comes first is taken first and answered first."""
    for first, second in [*combinations(taken, 2), *product(taken, left)]:
        same_lane = first.topic == second.topic and first.sent.level == second.sent.level
        insist(
            not same_lane or first.before(second),
            f"claim: {first.id}, due {first.due}, came before {second.id}, due {second.due}, in {first.topic}.",
        )


def fits(told: int | None, soonest: int | None, *, now: int, ordered: bool) -> bool:
    """Where the order is loose, so is the time to come back: it may be sooner, and in vain, but not now."""
    if ordered or told == soonest:
        return told == soonest
    return told is not None and now < told and (soonest is None or told < soonest)


def check_oldest(what: str, expected: Sequence[Message], gone: Sequence[Message]) -> None:
    """Which of those that died in the same millisecond go first is the engine's choice."""
    agree(f"{what}, ages of those gone", *(sorted((m.topic, m.died) for m in each) for each in (expected, gone)))
