"""Another queue of bide as a source: the messages of one engine, to be moved to another while workers and senders go on.

A pending message is taken by moving its time AWAY: no worker gets it, and its own time can be read off it. Then it is sent to
the other queue, looked at once more, and cancelled. Who cancels or reschedules it in between changes it here, and then the copy
is taken back. A dead letter stays what it is until it has been sent, as no worker takes it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from bide.adopt.queue.listing import Listing
from bide.adopt.queue.moved_message import AWAY, Able, brought_back, has_failed, is_away, is_same, message_of
from bide.adopt.queue.on_the_way import TAKEN_OVER, Batch, Log, Mark, OtherMove, mark_of
from bide.adopt.source import Entries, Found, Held, Names, Refused
from bide.core.when import MAX_DELAY_MS
from bide.engines.base import MAX_BATCH, Move, NewMessage, Past, Ref, Stored
from bide.types import CancelResult, RescheduleResult

if TYPE_CHECKING:
    import re

    from bide.engines.sync import Engine


_NOTES = 9  # that are cancelled together with a batch: those of three batches before it


class _Holding(NamedTuple):
    """A message that is on its way."""

    batch: str
    message: Stored  # as it was before it was moved away
    was_ending: bool = False  # an earlier run was cancelling it


class QueueSource:
    kind: str = "queue"

    def __init__(
        self, engine: "Engine", shown: str, topics: "re.Pattern[str]", able: Able, destination: str, *, looks: bool = False
    ) -> None:
        """`topics`: the names of those that are moved. `destination`: a name of the other queue, the same in each run. `looks`:
        nothing is to be changed."""
        self._looks = looks
        self.shown: str = shown
        self._engine = engine
        self._able = able
        self.listing: Listing = Listing(engine, topics, able)
        self.log: Log = Log(engine, destination)
        self._held: dict[str, _Holding] = {}  # by name
        self._met: set[str] = set()  # names of batches, of all that there were
        self._open: Counter[str] = Counter()  # by batch, how many are held
        self._done: list[str] = []  # batches that have been moved, and whose notes are still there
        self._pages: Iterator[list[Stored]] = iter(())
        self._suspect: list[str] = []  # ids that an earlier run may yet move away: its statement goes on when it is killed
        self._settled = True  # what was changed after an earlier run was killed has been dealt with
        self._broken = False  # a verb has failed half-way: only the notes tell what is away

    def aim(self, destination: str) -> None:
        """It was told at first."""

    def count(self) -> int:
        return self.listing.count()

    def peek(self, limit: int) -> Entries:
        found, refused = self.listing.sorted_out(list(self.listing.first(limit)), ())
        return Entries([Found(each.id, message_of(each, self._able, each.due)) for each in found][:limit], refused)

    def held(self) -> Held:
        """What is known already is not told again."""
        with self._whole():
            batches = self.log.read() if self._looks else self.log.begin()
            found: list[Found] = []
            ended: list[Found] = []
            last = {mark.id: each.name for each in sorted(batches, key=_since) for mark in each.marks}
            for batch in batches:
                if batch.name not in self._met:
                    self._met.add(batch.name)
                    ended += self._held_before(batch, last, found)
            self._done += [each.name for each in batches if not self._open[each.name] and each.name not in self._done]
            self._settled = not ended
            return Held(found, age=self.log.age(batches), ended=ended)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._broken = True
            raise

    def _held_before(self, batch: Batch, last: Mapping[str, str], found: list[Found]) -> Iterator[Found]:
        """Find what an earlier run has held, and give what somebody has changed or ended since.

        `last`: of each message, the batch that has it now. Before a second kill, it may have been taken again.
        """
        changed: list[str] = []
        for mark, stored in zip(batch.marks, self._get(batch.ids), strict=True):
            before = None if stored is None else brought_back(stored)
            if last[mark.id] != batch.name:
                yield Found(batch.named(mark), _nothing_of(mark))
            elif stored is not None and before is not None and mark.id not in batch.changed and _is_held(mark, stored, before):
                found.append(self._hold(batch, mark, before, was_ending=batch.ending))
            elif stored is not None or not batch.ending or mark.id in batch.changed:  # else that run has cancelled it
                changed.append(mark.id)
                yield Found(batch.named(mark), _nothing_of(mark))
        if not self._looks:
            self._bring_back(changed)
            self._suspect += changed

    def take(self, limit: int) -> Entries:
        """A pass goes through all topics once. The last one finds nothing."""
        refused: list[Refused] = []
        fresh, self._settled = False, True
        while True:
            page = next(self._pages, None)
            if page is None:
                if fresh:
                    return Entries(refused=refused)
                fresh, self._pages = True, self.listing.pages(max(1, limit - _NOTES))
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
            self._undo([each.id for each in taken])
            raise OtherMove(TAKEN_OVER)
        if not taken:
            self._done.append(batch.name)
        marks = {each.id: each for each in batch.marks}
        return Entries([self._hold(batch, marks[each.id], each) for each in taken], gone=len(messages) - len(taken))

    def _sent_away(self, batch: Batch, messages: Sequence[Stored]) -> list[Stored]:
        moved = self._engine.reschedule([Move(Ref(id=id), delay=AWAY, origin="due") for id in batch.ids])
        taken = [each for each, end in zip(messages, moved, strict=True) if end is RescheduleResult.MOVED]
        failed = [each.id for each in taken if has_failed(each)]
        whole = {each.id: brought_back(each) for each in self._get(failed) if each is not None}
        return [whole.get(each.id, each) for each in taken]

    def _undo(self, ids: Sequence[str]) -> None:
        """Leave messages as far away as they were before this run moved them: the other run may have moved them, too."""
        if away := [each for each in self._get(ids) if each is not None and is_away(each)]:
            self._engine.reschedule([Move(Ref(id=each.id), at=each.due - AWAY) for each in away])

    def _dead(self, batch: Batch) -> list[Stored]:
        return [each for each in self._get(batch.ids) if each is not None and each.state == "dead"]

    def _hold(self, batch: Batch, mark: Mark, message: Stored, *, was_ending: bool = False) -> Found:
        name = batch.named(mark)
        self._held[name] = _Holding(batch.name, message, was_ending)
        self._open[batch.name] += 1
        return Found(name, message_of(message, self._able, self.log.now))

    def _let_go(self, names: Sequence[str]) -> dict[str, _Holding]:
        held = {name: self._held.pop(name) for name in names}
        self._open.subtract(each.batch for each in held.values())
        return held

    def finish(self, names: Sequence[str], changed: Names) -> None:
        with self._whole():
            held = self._let_go(names)
            batches = list({each.batch: None for each in held.values()})
            self.log.add_ending(batches)
            dead = {name: each for name, each in held.items() if each.message.state == "dead"}
            pending = {name: each for name, each in held.items() if name not in dead}
            others = [*self._cancelled(pending), *self._purged(dead)]
            if others and self.log.is_ours():  # else another run has ended them, and has sent them
                self.log.add_changed(
                    {batch: [held[name].message.id for name in others if held[name].batch == batch] for batch in batches}
                )
                changed(others)
            self._done += [each for each in batches if not self._open[each]]  # their notes go with the next batch

    def _cancelled(self, held: Mapping[str, _Holding]) -> list[str]:
        """Gives those that somebody has changed or ended. What is gone a moment after this look was ended here before."""
        now = dict(zip(held, self._get([each.message.id for each in held.values()]), strict=True))
        same = [name for name, each in now.items() if each is not None and is_same(each, held[name].message)]
        over, self._done = self._done[: (MAX_BATCH - len(same)) // 3], self._done[(MAX_BATCH - len(same)) // 3 :]
        refs = [*(Ref(id=held[name].message.id) for name in same), *self.log.taken_off(over)]
        ended = zip(same, self._engine.cancel(refs) if refs else (), strict=False)
        done = {name for name, end in ended if end in (CancelResult.CANCELLED, CancelResult.GONE)}
        done |= {name for name, each in now.items() if each is None and held[name].was_ending}
        changed = [name for name in held if name not in done]
        self._bring_back([held[name].message.id for name in changed])
        return changed

    def _purged(self, held: Mapping[str, _Holding]) -> list[str]:
        """Gives those that somebody has requeued or purged."""
        now = dict(zip(held, self._get([each.message.id for each in held.values()]), strict=True))
        by_topic: dict[str, list[str]] = {}
        for each in filter(None, now.values()):
            if each.state == "dead":
                by_topic.setdefault(each.topic, []).append(each.id)
        for topic, ids in by_topic.items():
            self._engine.purge(topic, "dead", ids)
        dead = {id for ids in by_topic.values() for id in ids}
        return [name for name, each in now.items() if (not held[name].was_ending if each is None else each.id not in dead)]

    def give_back(self, names: Sequence[str]) -> None:
        held = self._let_go(names).values()
        self.listing.left |= {each.message.id for each in held}
        with self._whole():
            self._bring_back([each.message.id for each in held if each.message.state != "dead"])
        self._done += [batch for batch in {each.batch for each in held} if not self._open[batch]]

    def _bring_back(self, ids: Sequence[str]) -> None:
        """To their own times, but for those that somebody has given a new one."""
        if away := [each for each in self._get(ids) if each is not None and is_away(each)]:
            self._engine.reschedule([Move(Ref(id=each.id), at=brought_back(each).due) for each in away])

    def close(self) -> None:
        """Take off the notes of what is on its way, if nothing is. The engine is its owner's."""
        if self._settled and not (self._looks or self._held or self._broken):
            for first in range(0, len(self._suspect) if self.log.is_ours() else 0, MAX_BATCH):
                self._bring_back(self._suspect[first : first + MAX_BATCH])
            self.log.end(self._done)

    def _get(self, ids: Sequence[str]) -> list[Stored | None]:
        return self._engine.get([Ref(id=id) for id in ids]) if ids else []


def _is_held(mark: Mark, stored: Stored, before: Stored) -> bool:
    """Whether a message is still as it was when it was taken."""
    return (is_away(stored) or mark.dead) and mark == mark_of(before)


def _since(batch: Batch) -> int:
    return batch.since


def _nothing_of(mark: Mark) -> NewMessage:
    """Of a message that is no longer as it was: with its name, it is the copy that was sent, or one that nobody gets."""
    return NewMessage(mark.topic, b"", delay=MAX_DELAY_MS, key=mark.key, past=Past(dead=True) if mark.dead else None)
