"""Which deliveries of a channel were acknowledged, so that one acknowledgement can stand for many.

The broker takes an acknowledgement with `multiple` for all deliveries up to a number. So it may be sent only where each of them
was acknowledged before or is now, also those that this process has not seen.
"""

from collections.abc import Collection, Iterator

MOST = 10_000  # numbers that are remembered beyond one that is missing


class Tags:
    def __init__(self) -> None:
        self._all_to = 0  # each number up to this one was acknowledged
        self._beyond: set[int] = set()
        self._stuck = False  # too many beyond one that is missing: it is not waited for any more

    def acknowledgements(self, tags: Collection[int]) -> Iterator[tuple[int, bool]]:
        """What to send, in this order, for deliveries that were not acknowledged before: numbers, and whether up to them."""
        if self._stuck:
            return ((tag, False) for tag in tags)
        self._beyond.update(tags)
        while self._all_to + 1 in self._beyond:
            self._all_to += 1
            self._beyond.discard(self._all_to)
        if len(self._beyond) > MOST:
            self._stuck = True
            self._beyond.clear()
        return self._joined(tags, self._all_to)

    @staticmethod
    def _joined(tags: Collection[int], all_to: int) -> Iterator[tuple[int, bool]]:
        last = max((tag for tag in tags if tag <= all_to), default=0)  # the broker must hold this very one
        if last:
            yield last, True
        yield from ((tag, False) for tag in tags if tag > last)
