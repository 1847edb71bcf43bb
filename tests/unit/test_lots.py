"""Ends of lots: any part of them stands for the same ends."""

from collections.abc import Sequence

import pytest

from bide.engines.base import Claimed
from bide.engines.lots import Ends, Lot, Noted, Picked, Stretch, done


class Few(Lot):
    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self.topics: Sequence[str] = ["t"] * count
        self.odd = ()

    def messages(self, places: Sequence[int]) -> list[Claimed]:
        return [
            Claimed(f"{self._name}{at}", self.topics[at], b"", {}, None, due, due, 1, 3, "token")
            for at, due in zip(places, self.dues(places), strict=True)
        ]

    def bodies(self) -> Sequence[bytes]:
        return [b""] * len(self.topics)

    def dues(self, places: Sequence[int]) -> Sequence[int]:
        return [1_000 * place for place in places]


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


def mixed() -> Few:
    lot = Few("m", 6)
    lot.topics = ["t", "u", "t", "t", "u", "u"]
    return lot


def test_some_of_a_lot_are_as_a_list_of_them() -> None:
    lot, places = mixed(), [4, 0, 2]
    picked = Picked(lot, places)
    assert list(picked) == [lot[place] for place in places] == [picked[0], *picked[1:]]
    assert (len(picked), picked.dues()) == (3, [each.due for each in picked])
    assert lot.by_topic(places) == {"u": [0], "t": [1, 2]}
    assert lot.by_topic([0, 2]) == {"t": range(2)}


@pytest.mark.parametrize("heard", [True, False])
def test_ends_of_each_topic_say_what_their_list_would(heard: bool) -> None:
    lot, places = mixed(), [4, 0, 2, 1]
    took = [0.4, 0.0, 0.2, 0.1] if heard else []
    noted = Noted(Few("c", 3)[2], 9_000, 2.5) if heard else None
    made = [done(Few("c", 3)[2], noted), done(Few("c", 3)[1])]
    every = Ends([Stretch(lot, places, now=7_000, seconds=took), Stretch(None, ends=made)])
    parts = every.by_topic()
    assert {topic: {each.id for each in some} for topic, some in parts.items()} == {
        "u": {"m4", "m1"},
        "t": {"m0", "m2", "c2", "c1"},
    }
    for some in [every, every[1:5], *parts.values()]:
        assert isinstance(some, Ends)
        known = [each.noted for each in some if each.noted is not None]
        assert some.lateness() == [(each.now - each.claimed.due) / 1000 for each in known]
        assert some.seconds() == [each.seconds for each in known]
        assert {each.topic for each in some} <= set(lot.topics)
