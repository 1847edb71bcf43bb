"""What a claim has brought, as one object: a message of it, or its end, is made when somebody asks for that.

An engine may give a lot in place of a list of messages, and is then told the ends of what is done as acks. To everybody else
these are the sequences that they stand for.
"""

import functools
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, overload

from bide.engines.base import Claimed, End


class Lot(Sequence[Claimed]):
    """It holds all of its bodies for as long as somebody knows one of its messages, so these are small."""

    topics: Sequence[str]  # of each message
    topic: str | None = None  # of all of them
    odd: Collection[int]  # the places of messages that have been tried before, have headers, or one attempt only

    @abstractmethod
    def messages(self, places: Sequence[int]) -> list[Claimed]: ...

    @abstractmethod
    def bodies(self) -> Sequence[bytes]: ...

    @abstractmethod
    def dues(self, places: Sequence[int]) -> Sequence[int]: ...

    def by_topic(self, places: Sequence[int]) -> Mapping[str, Sequence[int]]:
        """Which of the places have messages of each topic, by where they are among these."""
        if self.topic is not None:
            return {self.topic: range(len(places))}
        topics = [self.topics[place] for place in places]
        if len(names := dict.fromkeys(topics)) == 1:
            return {topics[0]: range(len(topics))}
        return {name: [i for i, topic in enumerate(topics) if topic == name] for name in names}

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


class Picked(Sequence[Claimed]):
    """Some messages of a lot."""

    def __init__(self, lot: Lot, places: Sequence[int]) -> None:
        self._lot = lot
        self._places = places

    def dues(self) -> Sequence[int]:
        return self._lot.dues(self._places)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> Claimed: ...
    @overload
    def __getitem__(self, at: slice) -> list[Claimed]: ...
    def __getitem__(self, at: int | slice) -> Claimed | list[Claimed]:
        return self._lot.messages(self._places[at]) if isinstance(at, slice) else self._lot.messages([self._places[at]])[0]

    def __iter__(self) -> Iterator[Claimed]:
        return iter(self._lot.messages(self._places))


class Noted(NamedTuple):
    """What those who listen to events learn of a delivery when it ends."""

    claimed: Claimed
    now: int  # by the engine's clock, when it was handed out
    seconds: float  # of work


class Stretch(NamedTuple):
    """Places in a lot; or ends that were made, without one."""

    lot: Lot | None
    places: Sequence[int] = ()
    ends: Sequence[End] = ()
    now: int = 0  # by the engine's clock, when the lot was handed out
    seconds: Sequence[float] = ()  # of work, of each place; empty if nobody listens to events

    def of(self, some: Sequence[int]) -> "Stretch":
        """Some of its places, by where they are among them."""
        if len(some) == len(self.places):
            return self
        seconds = [self.seconds[i] for i in some] if self.seconds else ()
        return self._replace(places=[self.places[i] for i in some], seconds=seconds)


class Ends(Sequence[End]):
    """What is at places in lots is done. An end of it is made when somebody asks."""

    def __init__(self, stretches: Sequence[Stretch]) -> None:
        """`stretches`: one after the other."""
        self.stretches: Sequence[Stretch] = stretches

    def topics(self) -> set[str]:
        found: set[str] = set()
        for each in self.stretches:
            if each.lot is not None:
                found.update(each.lot.by_topic(each.places))
            found.update(end.topic for end in each.ends)
        return found

    def by_topic(self) -> Mapping[str, "Ends"]:
        found: dict[str, list[Stretch]] = {}
        for each in self.stretches:
            if each.lot is not None:
                for topic, some in each.lot.by_topic(each.places).items():
                    found.setdefault(topic, []).append(each.of(some))
            for end in each.ends:
                found.setdefault(end.topic, []).append(Stretch(None, ends=[end]))
        return {topic: Ends(stretches) for topic, stretches in found.items()}

    def lateness(self) -> list[float]:
        """Of each that was noted, the seconds from its due time to its delivery."""
        found: list[float] = []
        for lot, places, ends, now, seconds in self.stretches:
            if lot is not None and seconds:
                found += [(now - due) / 1000 for due in lot.dues(places)]
            found += [(each.noted.now - each.noted.claimed.due) / 1000 for each in ends if each.noted is not None]
        return found

    def seconds(self) -> list[float]:
        """Of work, of each that was noted."""
        found: list[float] = []
        for each in self.stretches:
            found += each.seconds
            found += [end.noted.seconds for end in each.ends if end.noted is not None]
        return found

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
        for each in self.stretches:
            count = len(each.places) + len(each.ends)
            if max(0, start) < min(stop, count):
                part = slice(max(0, start), stop)
                yield each._replace(places=each.places[part], ends=each.ends[part], seconds=each.seconds[part])
            start, stop = start - count, stop - count

    def __iter__(self) -> Iterator[End]:
        return iter(self._ends)

    @functools.cached_property
    def _ends(self) -> list[End]:
        found: list[End] = []
        for lot, places, ends, now, seconds in self.stretches:
            if lot is None:
                found += ends
            elif seconds:
                messages = lot.messages(places)
                found += [done(each, Noted(each, now, took)) for each, took in zip(messages, seconds, strict=True)]
            else:
                found += map(done, lot.messages(places))
        return found


def done(claimed: Claimed, noted: Noted | None = None) -> End:
    return End(claimed.topic, claimed.id, claimed.token, "done", noted=noted)
