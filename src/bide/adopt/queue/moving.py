"""Another queue of bide as a source: the messages of one engine, to be moved to another while workers and senders go on.

A pending message is taken by moving its time AWAY: no worker gets it, and its own time can be read off it. Then it is sent to
the other queue, looked at once more, and cancelled. Who cancels or reschedules it in between changes it here, and then the copy
is taken back. A dead letter stays what it is until it has been sent, as no worker takes it.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from bide.adopt.queue.ending import NOTES, Ending
from bide.adopt.queue.left import Last, left_of
from bide.adopt.queue.listing import Listing
from bide.adopt.queue.moved_message import AWAY, Able, brought_back, has_failed, is_away, message_of
from bide.adopt.queue.notes import Batch, Mark, mark_of, notes_of
from bide.adopt.queue.on_the_way import TAKEN_OVER, Log, OtherMove
from bide.adopt.source import Entries, Found, Held, Names, Refused
from bide.core.when import MAX_DELAY_MS
from bide.engines.base import Move, NewMessage, Past, Ref, Stored
from bide.types import RescheduleResult

if TYPE_CHECKING:
    import re

    from bide.engines.sync import Engine

_SOON = 60_000  # ms: what is due by then may have been handled while it was listed
_LATE = 60.0  # seconds in which a statement of a run that was killed may still act


class _Holding(NamedTuple):
    """A message that is on its way."""

    batch: Batch
    message: Stored  # as it was before it was moved away


class _Changed(NamedTuple):
    """What others had changed when a batch of an earlier run was found, which may yet move it away."""

    batch: Batch
    ids: Sequence[str]
    since: float


class QueueSource:
    kind: str = "queue"

    def __init__(
        self,
        engine: "Engine",
        shown: str,
        topics: "re.Pattern[str]",
        able: Able,
        destination: str | None,
        *,
        looks: bool = False,
    ) -> None:
        """`topics`: the names of those that are moved. `destination`: a name of the other queue, the same in each run; None if
        all is to be given back. `looks`: nothing is to be changed."""
        self._looks = looks
        self._given_up = destination is None
        self.shown: str = shown
        self._engine = engine
        self._able = able
        self.listing: Listing = Listing(engine, topics, able)
        self.log: Log = Log(engine, destination)
        self._held: dict[str, _Holding] = {}  # by name
        self._met: set[str] = set()  # names of batches, of all that there were
        self._open: Counter[str] = Counter()  # by batch, how many are held
        self._done: list[Batch] = []  # have been moved, and their notes are still there
        self._changed: list[_Changed] = []
        self._ending = Ending(engine, self.log, self._get, self._done_notes)
        self._pages: Iterator[list[Stored]] = iter(())
        self._settled = True  # what was changed after an earlier run was killed has been dealt with
        self._broken = False  # a verb has failed half-way: only the notes tell what is away

    def aim(self, destination: str) -> None:
        """It was told at first."""

    def count(self) -> int | None:
        return self.listing.count()

    def peek(self, limit: int) -> Entries:
        found, refused = self.listing.sorted_out(list(self.listing.first(limit)), ())
        return Entries([Found(each.id, message_of(each, self._able, each.due)) for each in found][:limit], refused)

    def held(self) -> Held:
        """What is known already is not told again."""
        with self._whole():
            batches = self.log.read() if self._looks else self.log.begin()
            held = Held([], age=self.log.age(batches), ended=[], known=[])
            last = Last.of(batches)
            for batch in batches:
                if batch.name not in self._met:
                    self._met.add(batch.name)
                    held = self._look_back(batch, last, held)
            self._settled = not (held.ended or held.known) or self._given_up
            self._tidy(0)
            return held

    @contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._broken = True
            raise

    def _look_back(self, batch: Batch, last: Last, held: Held) -> Held:
        """Find what an earlier run has held, and what somebody has changed or ended since."""
        left = left_of(batch, self._get, last, whole=self._ending.whole)
        changed = [mark.id for mark in (*left.changed, *left.known)]
        if not self._looks:
            self.log.check()  # else the other one has ended what is not there
        if changed and not self._looks:
            self.log.add_changed(batch, changed)
            mine = [id for id in changed if last.has[id] == batch.name]
            self._bring_back(mine)
            self._changed.append(_Changed(batch, mine, time.monotonic()))
        found = [self._hold(batch, mark, message) for mark, message in left.held]
        if not self._looks:
            self._end(batch)
        ended, known = ([Found(batch.named(mark), _nothing_of(mark)) for mark in marks] for marks in (left.changed, left.known))
        return held._replace(found=[*held.found, *found], ended=[*held.ended, *ended], known=[*held.known, *known])

    def take(self, limit: int) -> Entries:
        """A pass goes through all topics once. The last one finds nothing."""
        refused: list[Refused] = []
        fresh, self._settled = False, True
        self._tidy(NOTES)
        while True:
            page = next(self._pages, None)
            if page is None:
                if fresh:
                    self._tidy(0)
                    return Entries(refused=refused)
                fresh, self._pages = True, self.listing.pages(max(1, limit - NOTES))
                continue
            able, unable = self.listing.sorted_out(page, {each.message.id for each in self._held.values()})
            refused += unable
            if not able:
                continue
            with self._whole():
                taken = self._take(able)
            if taken.found or taken.gone:
                return taken._replace(refused=refused)

    def _take(self, messages: Sequence[Stored]) -> Entries:
        if not self.log.now:
            self.log.begin()
        batch = Batch(uuid4().hex[:12], [mark_of(each) for each in messages])
        self._met.add(batch.name)
        self.log.add(batch)
        taken = self._dead(batch) if messages[0].state == "dead" else self._sent_away(batch, messages)
        if not self.log.is_ours():  # it took long, and another run has taken over
            if not self.log.has(batch):  # and ended
                self._bring_back([each.id for each in taken])
            raise OtherMove(TAKEN_OVER)
        marks = {each.id: each for each in batch.marks}
        found = [self._hold(batch, marks[each.id], each) for each in taken]
        self._end(batch)
        return Entries(found, gone=len(messages) - len(taken))

    def _sent_away(self, batch: Batch, messages: Sequence[Stored]) -> list[Stored]:
        moved = self._engine.reschedule([Move(Ref(id=id), delay=AWAY, origin="due") for id in batch.ids])
        taken = [each for each, end in zip(messages, moved, strict=True) if end is RescheduleResult.MOVED]
        soon = self.log.now + _SOON
        again = [each.id for each in taken if each.due < soon or has_failed(each)]
        now = {each.id: brought_back(each) for each in self._get(again) if each is not None}
        return [now.get(each.id, each) for each in taken]

    def _dead(self, batch: Batch) -> list[Stored]:
        return [each for each in self._get(batch.ids) if each is not None and each.state == "dead"]

    def _hold(self, batch: Batch, mark: Mark, message: Stored) -> Found:
        name = batch.named(mark)
        self._held[name] = _Holding(batch, message)
        self._open[batch.name] += 1
        return Found(name, message_of(message, self._able, self.log.now))

    def _let_go(self, names: Sequence[str]) -> list[tuple[Batch, dict[str, Stored]]]:
        """By batch: the messages, by their names."""
        found: dict[str, tuple[Batch, dict[str, Stored]]] = {}
        for name in names:
            batch, message = self._held.pop(name)
            found.setdefault(batch.name, (batch, {}))[1][name] = message
            self._open[batch.name] -= 1
        return list(found.values())

    def _end(self, batch: Batch) -> None:
        """Its notes go with the next batch, unless a part of it is held, or may be moved away yet."""
        if not self._open[batch.name] and not any(each.batch is batch for each in self._changed):
            self._done.append(batch)

    def finish(self, names: Sequence[str], changed: Names) -> None:
        with self._whole():
            for batch, messages in self._let_go(names):
                others = self._ending.end(batch, messages)
                if others and self.log.is_ours():  # else another run has ended them, and has sent them
                    ids = [messages[name].id for name in others]
                    self.log.add_changed(batch, ids)
                    self._bring_back(ids)
                    changed(others)
                self._end(batch)

    def give_back(self, names: Sequence[str]) -> None:
        with self._whole():
            for batch, messages in self._let_go(names):
                self.listing.left |= {each.id for each in messages.values()}
                self._bring_back([each.id for each in messages.values() if each.state != "dead"])
                self._end(batch)

    def _bring_back(self, ids: Sequence[str]) -> None:
        """To their own times, but for those that somebody has given a new one."""
        if away := [each for each in self._get(ids) if each is not None and is_away(each)]:
            self._engine.reschedule([Move(Ref(id=each.id), at=brought_back(each).due) for each in away])

    def _tidy(self, most: int) -> None:
        """Remove the notes of what has been moved, if they are more than so many."""
        if self._changed and self._changed[0].since < time.monotonic() - _LATE:
            self._settle_changed()
        if len(self._done) > most:
            self.log.take_off(self._done)
            self._done = []

    def _done_notes(self, most: int) -> list[Ref]:
        refs: list[Ref] = []
        while self._done and len(refs) + len(notes := notes_of(self._done[0])) <= most:
            refs += notes
            del self._done[0]
        return refs

    def _settle_changed(self) -> None:
        """What a late statement has moved away comes back: before the notes are removed, and what it does meanwhile."""
        changed, self._changed = self._changed, []
        for each in changed:
            self._bring_back(each.ids)
            self._end(each.batch)
        self._tidy(0)
        for each in changed:
            self._bring_back(each.ids)

    def close(self) -> None:
        """Take off the notes of what is on its way, if nothing is. The engine is its owner's."""
        if self._settled and not (self._looks or self._held or self._broken) and self.log.is_ours():
            self._settle_changed()
            self.log.end()

    def _get(self, ids: Sequence[str]) -> list[Stored | None]:
        return self._engine.get([Ref(id=id) for id in ids]) if ids else []


def _nothing_of(mark: Mark) -> NewMessage:
    """Of a message that is no longer as it was: with its name, it is the copy that was sent, or one that nobody gets."""
    dead = mark.dead or mark.key is not None
    return NewMessage(mark.topic, b"", delay=MAX_DELAY_MS, key=mark.key, past=Past(dead=True) if dead else None)
