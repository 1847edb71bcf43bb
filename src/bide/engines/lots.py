"""What a claim has brought, as one object: a message of it, or its end, is made when somebody asks for that.

An engine may give a lot in place of a list of messages, and is then told the ends of what is done as acks. To everybody else
these are the sequences that they stand for.
"""

import functools
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import repeat
from typing import Any, NamedTuple, overload

from bide.engines.base import Claimed, End


class Lot(Sequence[Claimed]):
    """It holds all of its bodies for as long as somebody knows one of its messages, so these are small."""

    topics: Sequence[str]  # of each message
    odd: Collection[int]  # the places of messages that have been tried before, have headers, or one attempt only

    @abstractmethod
    def messages(self, places: Sequence[int]) -> list[Claimed]: ...

    @abstractmethod
    def bodies(self) -> Sequence[bytes]: ...

    def __len__(self) -> int:
        return len(self.topics)

    @overload
    def __getitem__(self, at: int) -> Claimed: ...
    @overload
    def __getitem__(self, at: slice) -> list[Claimed]: ...
    def __getitem__(self, at: int | slice) -> Claimed | list[Claimed]:
        places = range(len(self))
        return self.messages(places[at]) if isinstance(at, slice) else self.messages([places[at]])[0]

    def __iter__(self) -> Iterator[Claimed]:
        return iter(self.messages(range(len(self))))


class Stretch(NamedTuple):
    """Places in a lot; or ends that were made, without one."""

    lot: Lot | None
    places: Sequence[int] = ()
    ends: Sequence[End] = ()
    noted: Sequence[Callable[[], Any]] = ()  # of each place, what its End has noted; empty if nobody listens to events


class Ends(Sequence[End]):
    """What is at places in lots is done. An end of it is made when somebody asks."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        """`stretches`: one after the other."""
        self.stretches: Sequence[Stretch] = stretches

    def __len__(self) -> int:
        return sum(len(each.places) + len(each.ends) for each in self.stretches)

    @overload
    def __getitem__(self, at: int) -> End: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[End]: ...
    def __getitem__(self, at: int | slice) -> End | Sequence[End]:
        if isinstance(at, slice) and at.step is None:
            return Ends(list(self._cut(*at.indices(len(self))[:2])))
        return self._ends[at]

    def _cut(self, start: int, stop: int) -> Iterator[Stretch]:
        for lot, places, ends, noted in self.stretches:
            count = len(places) + len(ends)
            if max(0, start) < min(stop, count):
                part = slice(max(0, start), stop)
                yield Stretch(lot, places[part], ends[part], noted[part])
            start, stop = start - count, stop - count

    def __iter__(self) -> Iterator[End]:
        return iter(self._ends)

    @functools.cached_property
    def _ends(self) -> list[End]:
        found: list[End] = []
        for each in self.stretches:
            if each.lot is None:
                found += each.ends
            else:
                notes = (note() for note in each.noted) if each.noted else repeat(None)
                found += map(done, each.lot.messages(each.places), notes)
        return found


def done(claimed: Claimed, noted: Any = None) -> End:
    return End(claimed.topic, claimed.id, claimed.token, "done", noted=noted)
