"""What of a claim is sent together: all that is sure to arrive, and in halves what was refused together."""

from collections.abc import Sequence

from bide.engines.base import End
from bide.queue.away import NO_DOUBT, SILENCE, SOON, Away, Kept, Rests, end_of, small_first
from bide.queue.outbox import Name


class Halves:
    """Of one claim. Each message is looked at a few times only, however many calls there are."""

    def __init__(self, kept: Sequence[Kept], rests: Rests, away: Away) -> None:
        self._rests = rests
        self._away = away
        self._groups = [kept] if kept else []  # of those that have no end, what may be sent together; the first one last
        self._doubtful: list[Sequence[Kept]] = []  # groups of which nothing is sure to be taken
        self._asked: Sequence[Kept] = ()  # in the last call
        self._refused: list[Sequence[Kept]] = []  # of these, what was refused together
        self._open = {claimed.id for claimed, _ in kept}
        self._known = 0  # how many ends
        self._stays: dict[Name, str] = {}  # of each name, the first that stays: it keeps back later ones
        self._names = {claimed.id: Name(new.topic, new.key) for claimed, new in kept if new.key is not None}
        self._earlier: dict[str, str] = {}  # of each that has one, the one before it of its name
        last: dict[Name, str] = {}
        for id, name in self._names.items():
            if name in last:
                self._earlier[id] = last[name]
            last[name] = id

    def refused(self, some: Sequence[Kept]) -> None:
        """These were, together: each half is sent by itself."""
        self._refused.append(some)

    def next(self, ends: list[End]) -> Sequence[Kept]:
        """All of a group that is sure to find an answer and room, as far as is known; else what may find no answer; else one
        that may find no room. Empty when all have their ends. The ends of what can't be sent now are added to the list.
        """
        self._sort_out(ends)
        self._asked = self._sure(ends)
        if not self._asked and self._doubtful:  # more may be known by now
            self._groups, self._doubtful = self._doubtful[::-1], []
            self._asked = self._sure(ends) or self._doubted()
        return self._asked

    def _sort_out(self, ends: Sequence[End]) -> None:
        """What has no end yet after a call is tried again."""
        for end in ends[self._known :]:
            self._open.discard(end.id)
            if end.verdict == "release":
                self._stick(end.id)
        self._known = len(ends)
        apart = {claimed.id for some in self._refused for claimed, _ in some}
        if left := [each for each in self._asked if each[0].id in self._open and each[0].id not in apart]:
            self._groups.append(left)
        for some in self._refused:
            half = (len(some) + 1) // 2
            self._groups += [some[half:], some[:half]]
        self._refused = []

    def _sure(self, ends: list[End]) -> Sequence[Kept]:
        """Of the first group that has such."""
        while self._groups:
            sure, doubtful, ids = list[Kept](), list[Kept](), set[str]()
            for each in self._groups.pop():
                claimed, _ = each
                name = self._names.get(claimed.id)
                if name in self._stays and self._stays[name] < claimed.id:
                    ends.append(end_of(claimed, "release", SOON))
                elif not self._away.answering([each], ends):
                    self._stick(claimed.id)
                elif self._rests.doubt(each) == NO_DOUBT and self._is_next(claimed.id, ids):
                    sure.append(each)
                    ids.add(claimed.id)
                else:
                    doubtful.append(each)
            if doubtful:
                self._doubtful.append(doubtful)
            if sure:
                return sure
        return ()

    def _doubted(self) -> Sequence[Kept]:
        for at, group in enumerate(self._doubtful):
            silent, ids = list[Kept](), set[str]()
            for each in group:
                if self._rests.doubt(each) <= SILENCE and self._is_next(each[0].id, ids):
                    silent.append(each)
                    ids.add(each[0].id)
            if silent:
                self._doubtful[at] = [each for each in group if each[0].id not in ids]
                return silent
        full = small_first(sorted((each for group in self._doubtful for each in group), key=lambda each: each[0].id))
        self._doubtful = [[each for each in group if each is not full[0]] for group in self._doubtful]
        return full[:1]

    def _stick(self, id: str) -> None:
        if (name := self._names.get(id)) is not None:
            self._stays[name] = min(id, self._stays.get(name, id))

    def _is_next(self, id: str, together: set[str]) -> bool:
        """Whether nothing of its name has to be sent before it, but what is sent with it."""
        earlier = self._earlier.get(id)
        return earlier is None or earlier not in self._open or earlier in together
