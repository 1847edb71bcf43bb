"""Ends of lots: any part of them stands for the same ends."""

from collections.abc import Sequence

import pytest

from bide.engines.base import Claimed
from bide.engines.lots import Ends, Lot, Stretch, done


class Few(Lot):
    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self.topics: Sequence[str] = ["t"] * count
        self.odd = ()

    def messages(self, places: Sequence[int]) -> list[Claimed]:
        return [Claimed(f"{self._name}{place}", "t", b"", {}, None, 0, 0, 1, 3, "token") for place in places]

    def bodies(self) -> Sequence[bytes]:
        return [b""] * len(self.topics)


def ends() -> Ends:
    first, second = Few("a", 9), Few("b", 4)
    made = [done(each) for each in Few("c", 3)]
    return Ends([Stretch(first, [8, 1, 2]), Stretch(None, ends=made), Stretch(second, [0, 3]), Stretch(first, [5])])


@pytest.mark.parametrize("start", range(10))
@pytest.mark.parametrize("stop", range(11))
def test_a_part_of_ends_is_ends_of_lots_still(start: int, stop: int) -> None:
    part, whole = ends()[start:stop], list(ends())
    assert list(part) == whole[start:stop]
    assert len(part) == len(whole[start:stop])
    assert isinstance(part, Ends)
    assert all(each.places or each.ends for each in part.stretches)


def test_every_other_end_is_a_list() -> None:
    assert list(ends()[::2]) == list(ends())[::2]
    assert ends()[-1] == list(ends())[-1]
