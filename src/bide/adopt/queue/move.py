"""Another queue of bide as a source: its messages are moved while workers and senders go on, or given back after a stop.

A pending message is taken by moving its time AWAY: no worker gets it, and its own time can be read off it. Then it is sent to
the other queue, and cancelled here if it is as it was taken. Who cancels or reschedules it in between changes it here, and then
the copy is taken back. A dead letter stays what it is until it has been sent, as no worker takes it.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from bide.adopt.queue.held import HeldEnds, InHand, Last, left_of
from bide.adopt.queue.messages import AWAY, TOO_FAR, Able, MessageListing, brought_back, crc_in, has_failed, is_away, message_of
from bide.adopt.queue.transfer_log import ENDED, ListedMark, OtherMove, TransferBatch, TransferLog, batches_of, idle, mark_of
from bide.adopt.source import EarlierRun, Entries, FoundEntry, Names, RefusedEntry
from bide.core.times import MAX_DELAY_MS
from bide.engines.base import MAX_BATCH, Move, NewMessage, Past, Ref, Stored
from bide.types import RescheduleResult

if TYPE_CHECKING:
    import re

    from bide.engines.sync import Engine


_SOON = 60_000  # ms: what is due by then may have been handled while it was listed
_MANY = 100  # batches that are done, before what is noted of them is removed
QUIET = 60.0  # seconds: a run that goes on takes messages more often


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
        self.shown: str = shown
        self._engine = engine
        self._able = able
        self.listing: MessageListing = MessageListing(engine, topics, able)
        self.log: TransferLog = TransferLog(engine, destination)
        self._ending = HeldEnds(engine, self.log, self._get)
        self._in_hand = InHand(self.log, self._ending.size)
        self._pages: Iterator[list[Stored]] = iter(())
        self._broken = False  # a part of a batch may have failed: only the notes tell what is away

    def aim(self, destination: str) -> None:
        """It was told at first."""

    def count(self) -> int | None:
        return self.listing.count()

    def peek(self, limit: int) -> Entries:
        batches = self.log.read()
        last = Last.of(batches)
        on_their_way = {mark.id for batch in batches for mark, _ in left_of(batch, self._get, last).held}
        found, refused = self.listing.sorted_out(list(self.listing.first(limit)), on_their_way)
        found.sort(key=lambda each: each.due)
        return Entries([FoundEntry(each.id, message_of(each, self._able, each.due)) for each in found][:limit], refused)

    def held(self) -> EarlierRun:
        """What is known already is not told again."""
        with self._or_broken():
            if not (self._looks or self._in_hand.is_empty):
                self.log.check()  # what it has in hand, another one may have ended
            batches = self.log.read() if self._looks else self.log.begin()
            held = EarlierRun([], ended=[], known=[])
            last = Last.of(batches)
            for batch in batches:
                if self._in_hand.meet(batch):
                    held = self._look_back(batch, last, held)
            held = held._replace(age=self.log.age([each for each in batches if self._in_hand.waits(each)]))
            self._tidy(0)
            return held

    @contextmanager
    def _or_broken(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._broken = True
            raise

    def _look_back(self, batch: TransferBatch, last: Last, held: EarlierRun) -> EarlierRun:
        """Find what an earlier run has held, and what somebody has changed or ended since."""
        left = left_of(batch, self._get, last)
        changed = [mark.id for mark in (*left.changed, *left.known)]
        if not self._looks:
            self.log.check()  # else the other one has ended what is not there
        if changed and not self._looks:
            self.log.add_changed(batch, changed)
            self._bring_back(batch, [id for id in changed if last.has[id] == batch.name])
        found = [self._hold(batch, mark, brought_back(each, mark.due), each.due) for mark, each in left.held]
        if changed:
            self._in_hand.settle_later(batch)
        elif not self._looks:
            self._in_hand.end(batch)
        ended, known = ([_copy_of(batch, mark) for mark in marks] for marks in (left.changed, left.known))
        return held._replace(found=[*held.found, *found], ended=[*held.ended, *ended], known=[*held.known, *known])

    def take(self, limit: int) -> Entries:
        """A pass goes through all topics once. The last one finds nothing."""
        refused: list[RefusedEntry] = []
        fresh = False
        self._tidy(_MANY)
        while True:
            page = next(self._pages, None)
            if page is None:
                if fresh:
                    self._tidy(0)
                    return Entries(refused=refused)
                fresh, self._pages = True, self.listing.pages(self._ending.page(limit))
                continue
            able, unable = self.listing.sorted_out(page, self._in_hand.ids)
            if self.log.now and any(each.reason is TOO_FAR for each in unable):
                self.log.check()  # else another run has moved it away
            refused += unable
            if not able:
                continue
            with self._or_broken():
                taken = self._take(able)
            if taken.found or taken.gone:
                return taken._replace(refused=refused)

    def _take(self, messages: Sequence[Stored]) -> Entries:
        if not self.log.now:
            self.log.begin()
        batches = [TransferBatch(uuid4().hex[:12], [mark_of(each) for each in some]) for some in self._ending.batches(messages)]
        self._in_hand.add(batches)
        self.log.add(batches)
        taken = self._dead(messages) if messages[0].state == "dead" else self._sent_away(batches, messages)
        if len(taken) < len(messages) or not self._ending.whole:
            self._check_after(batches)
        placed = {mark.id: (batch, mark) for batch in batches for mark in batch.marks}
        found = [self._hold(*placed[each.id], each, each.due + AWAY) for each in taken]
        for batch in batches:
            self._in_hand.end(batch)
        return Entries(found, gone=len(messages) - len(taken))

    def _check_after(self, batches: Sequence[TransferBatch]) -> None:
        """Raise OtherMove if another run has taken over. What was moved away when that one had looked for it comes back."""
        if not self._ending.whole and not self.log.is_ours():
            for batch in batches:
                if not self._is_ours(batch):
                    self._bring_back(batch, batch.ids)
        self.log.check()

    def _sent_away(self, batches: Sequence[TransferBatch], messages: Sequence[Stored]) -> list[Stored]:
        due, moved = {each.id: each.due for each in messages}, list[RescheduleResult]()
        for batch in batches:
            moves = [Move(Ref(id=id), delay=AWAY, origin="due", seen=due[id]) for id in batch.ids]
            moved += self._engine.reschedule(moves, condition=self._ending.condition(batch))
        taken = [each for each, end in zip(messages, moved, strict=True) if end is RescheduleResult.MOVED]
        soon = self.log.now + _SOON
        again = [each.id for each in taken if each.due < soon or has_failed(each)]
        now = {each.id: brought_back(each, due[each.id]) for each in self._get(again) if each is not None}
        others = {each.id for each in taken if each.id in now and _changed(now[each.id], each)}
        for batch in batches if others else ():
            self._bring_back(batch, [id for id in batch.ids if id in others])
        return [now.get(each.id, each) for each in taken if each.id not in others]

    def _dead(self, messages: Sequence[Stored]) -> list[Stored]:
        there = self._get([each.id for each in messages])
        return [each for each in there if each is not None and each.state == "dead"]

    def _hold(self, batch: TransferBatch, mark: ListedMark, message: Stored, away: int) -> FoundEntry:
        return FoundEntry(self._in_hand.hold(batch, mark, message, away), message_of(message, self._able, self.log.now))

    def finish(self, names: Sequence[str], changed: Names) -> None:
        with self._or_broken():
            for batch, held in self._in_hand.let_go(names):
                while held and (others := self._ending.end(batch, held, rest=not self._in_hand.is_open(batch))):
                    self.log.check()  # else another run has ended them, and has sent them
                    ids = [held.pop(name).message.id for name in others]
                    self.log.add_changed(batch, ids)
                    self._bring_back(batch, ids)
                    changed(others)
                self._in_hand.end(batch)

    def give_back(self, names: Sequence[str]) -> None:
        with self._or_broken():
            for batch, held in self._in_hand.let_go(names):
                messages = [each.message for each in held.values()]
                self.listing.left |= {each.id for each in messages}
                self._bring_back(batch, [each.id for each in messages if each.state != "dead"])
                self._in_hand.end(batch)

    def _bring_back(self, batch: TransferBatch, ids: Sequence[str]) -> None:
        """To their own times, but for those that somebody has given a new one. Raises OtherMove."""
        due = {mark.id: mark.due for mark in batch.marks}
        while away := [each for each in self._get(ids) if each is not None and is_away(each, due[each.id])]:
            some, others = away[: self._ending.size], away[self._ending.size :]
            moves = [Move(Ref(id=each.id), at=brought_back(each, due[each.id]).due, seen=each.due) for each in some]
            ends = self._engine.reschedule(moves, condition=self._ending.condition(batch))
            ids = [each.id for each, end in zip(some, ends, strict=True) if end is not RescheduleResult.MOVED]
            ids += [each.id for each in others]
            if self._ending.whole and not self._is_ours(batch):
                self.log.check()
                raise OtherMove(ENDED)
            if len(ids) == len(away):
                self.log.check()

    def _is_ours(self, batch: TransferBatch) -> bool:
        """Whether its note is there, as this run knows it."""
        [note] = self._get([batch.own])
        return note is not None and note.due == batch.noted

    def settle(self) -> None:
        self._in_hand.settle()

    def _tidy(self, most: int) -> None:
        with self._or_broken():
            self._in_hand.tidy(most)

    def close(self) -> None:
        """Take off the notes of what is on its way, if nothing is. The engine is its owner's."""
        if self._in_hand.is_empty and not (self._looks or self._broken):
            with suppress(OtherMove):  # they are the other run's
                self._tidy(0)
            self.log.end()

    def _get(self, ids: Sequence[str]) -> list[Stored | None]:
        return self._engine.get([Ref(id=id) for id in ids]) if ids else []


def _changed(now: Stored, listed: Stored) -> bool:
    """By what a copy is told, as it was noted."""
    return (now.key, now.body) != (listed.key, listed.body)


def _copy_of(batch: TransferBatch, mark: ListedMark) -> FoundEntry:
    """Of a message that is no longer as it was: by its name, it is the copy that was sent, or one that nobody gets."""
    past = Past(mark.attempt, dead=mark.dead or mark.key is not None)
    nothing = NewMessage(mark.topic, b"", delay=MAX_DELAY_MS, key=mark.key, past=past)
    return FoundEntry(batch.named(mark), nothing, crc_in(mark.print))


class GivenBack(NamedTuple):
    messages: int
    destinations: Collection[str]  # that may have copies: of them, or of what was given back or changed before


def give_all_back(engine: "Engine", shown: str) -> GivenBack:
    """Copies, if there are any, are left where they are. Raises OtherMove if a run may go on: it would send some after this."""
    batches, _ = batches_of(engine)
    if batches and (seconds := idle(engine, batches)) < QUIET:
        raise OtherMove(
            f"A `bide move` took messages {seconds:.0f} seconds ago, and may go on. End it, wait for a minute, and run this "
            "command again."
        )
    source = QueueSource(engine, shown, re.compile(".*"), Able(), None)
    held = source.held()
    names = [each.name for each in held.found]
    for first in range(0, len(names), MAX_BATCH):
        source.give_back(names[first : first + MAX_BATCH])
    source.settle()
    source.close()
    there = {each.destination for each in batches} if held.found or held.ended or held.known else set[str]()
    return GivenBack(len(names), there)
