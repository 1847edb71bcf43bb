"""Plays long histories, and makes one that fails shorter."""

from collections.abc import Callable, Iterable, Sequence

from bide.testing.long_history.history import Left, LongHistory
from bide.testing.pair import MakeSource

MOST_REPLAYS = 150  # of shorter histories, to find the shortest one


def play(
    make_source: MakeSource,
    seed: int,
    steps: Iterable[int],
    *,
    colours: Sequence[str],
    left: Left | None = None,
    watch: Left | None = None,
) -> LongHistory:
    history = LongHistory(make_source, seed, colours)
    try:
        history.run(steps, left, watch)
    finally:
        history.pair.end()
    return history


def check_long_history(
    make_source: MakeSource,
    *,
    seed: int,
    steps: int = 2_500,
    colours: Sequence[str] = ("async", "sync"),
    left: Left | None = None,
    watch: Left | None = None,
    shrink: bool = False,
) -> LongHistory:
    """Play the history of a seed, the same one each time; raises with the step that failed. Gives what was done.

    `left` looks at the place at the end, and `watch` now and then on the way there.

    With `shrink` a history that fails is made shorter first, which takes a while.
    """

    def fails(some: Sequence[int]) -> bool:
        try:
            play(make_source, seed, some, colours=colours, left=left, watch=watch)
        except Exception:
            return True
        return False

    try:
        return play(make_source, seed, range(steps), colours=colours, left=left, watch=watch)
    except Exception:
        if not shrink:
            raise
    return play(make_source, seed, _shortest(list(range(steps)), fails), colours=colours, left=left, watch=watch)


def _shortest(steps: list[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Leave out what is not needed, large pieces first."""
    size, replays = len(steps) // 2, 0
    while size and replays < MOST_REPLAYS:
        place = len(steps)
        while place > 0 and replays < MOST_REPLAYS:
            rest = steps[: max(0, place - size)] + steps[place:]
            replays += 1
            if fails(rest):
                steps = rest
            place -= size
        size //= 2
    return steps
