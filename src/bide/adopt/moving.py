"""Another queue of bide as a source: the messages of one engine, to be moved to another while workers and senders go on.

A pending message is taken by moving its time AWAY: no worker gets it, and its own time can be read off it. Then it is sent to
the other queue, looked at once more, and cancelled. Who cancels or reschedules it in between changes it here, and then the copy
is taken back. A dead letter stays what it is until it has been sent, as no worker takes it.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

from bide.adopt.moved_message import AWAY, FURTHEST, YEAR, Able, brought_back, fingerprint, is_away, is_same, message_of
from bide.adopt.on_the_way import Batch, Log
from bide.adopt.source import Entries, Found, Held, Refused
from bide.engines.base import MAX_BATCH, Move, Ref, Stored
from bide.queue.deliveries import DEPENDS
from bide.queue.schedules.records import OWN
from bide.types import CancelResult, RescheduleResult, State

if TYPE_CHECKING:
    import re

    from bide.engines.sync import Engine
    from bide.types import Stats

STATES: Sequence[State] = ("ready", "scheduled", "dead")

TOO_FAR = f"is due in more than {FURTHEST // YEAR} years"
WAITS = "waits for the results of other messages"
DEAD = "is a dead letter, and the other queue takes none"


class _Page(NamedTuple):
    state: State
    messages: Sequence[Stored]


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
        self._topics = topics
        self._able = able
        self.log: Log = Log(engine, destination)
        self._held: dict[str, tuple[str, Stored]] = {}  # by name: the batch, and the message with its own time
        self._batches: dict[str, Batch] = {}  # by name, those that the log has
        self._left: set[str] = set()  # ids of what was refused or given back
        self._pages: Iterator[_Page] = iter(())
        self._broken = False  # a verb has failed half-way: only the record tells what is away

    def chosen(self) -> "Mapping[str, Stats]":
        """The topics that are moved, with their counts."""
        topics = self._engine.stats(but=OWN).topics
        return {name: each for name, each in sorted(topics.items()) if self._topics.fullmatch(name)}

    def count(self) -> int:
        return sum(each.scheduled + each.ready + each.dead for each in self.chosen().values())

    def peek(self, limit: int) -> Entries:
        pages = list(self._first_pages(limit))
        found, refused = self._sorted_out(pages)
        return Entries(
            [Found(each.id, message_of(each, self._able, time.time_ns() // 1_000_000)) for each in found][:limit], refused
        )

    def _first_pages(self, limit: int) -> Iterator[_Page]:
        for topic in self.chosen():
            for state in STATES:
                yield _Page(state, self._engine.scan(topic, state, min(limit, MAX_BATCH)).messages)

    def held(self) -> Held:
        with self._whole():
            return self._held_before()

    @contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._broken = True
            raise

    def _held_before(self) -> Held:
        way = self.log.read()
        if not self._looks:
            self.log.begin()
        found: list[Found] = []
        for batch in way.batches:
            self._batches[batch.name] = batch
            stored = [each for each in self._get(batch.ids) if each is not None]
            pending = [brought_back(each) for each in stored if is_away(each)]
            found += self._hold([*pending, *(each for each in stored if each.state == "dead")], batch.name)
        return Held(found, age=way.age)

    def take(self, limit: int) -> Entries:
        """A pass goes through all topics once. The last one finds nothing."""
        refused: list[Refused] = []
        fresh = False
        while True:
            page = next(self._pages, None)
            if page is None:
                if fresh:
                    return Entries(refused=refused)
                fresh, self._pages = True, self._pass(limit)
                continue
            able, unable = self._sorted_out([page])
            refused += unable
            if not able:
                continue
            with self._whole():
                taken = self._take_dead(able) if page.state == "dead" else self._take_pending(able)
            if taken.found or taken.gone:
                return taken._replace(refused=refused)

    def _pass(self, limit: int) -> Iterator[_Page]:
        """All messages, page by page. Those of small topics share a page."""
        gathered: dict[bool, _Page] = {}
        for page in self._scanned(limit):
            dead = page.state == "dead"
            before = gathered.get(dead, _Page(page.state, ()))
            if len(before.messages) + len(page.messages) > limit:
                yield before
                before = _Page(page.state, ())
            gathered[dead] = _Page(page.state, [*before.messages, *page.messages])
        yield from gathered.values()

    def _scanned(self, limit: int) -> Iterator[_Page]:
        for topic in self.chosen():
            for state in STATES:
                after: str | None = None
                while True:
                    page = self._engine.scan(topic, state, limit, after)
                    if page.messages:
                        yield _Page(state, page.messages)
                    after = page.after
                    if after is None:
                        break

    def _sorted_out(self, pages: Sequence[_Page]) -> tuple[list[Stored], list[Refused]]:
        """What can be moved, and what can't; without what this run knows already."""
        able, unable, now = list[Stored](), list[Refused](), time.time_ns() // 1_000_000
        met = {each.id for _, each in self._held.values()}  # one that moves while it is listed may come twice
        for page in pages:
            for each in page.messages:
                if each.id in met or each.id in self._left:
                    continue
                met.add(each.id)
                reason = self._refuses(each, now)
                if reason is None:
                    able.append(each)
                elif reason is not TOO_FAR or self._get([each.id]) != [None]:  # else it was on its way when it was listed
                    self._left.add(each.id)
                    unable.append(Refused(f"{each.id} of {each.topic}", reason))
        return able, unable

    def _refuses(self, message: Stored, now: int) -> str | None:
        if DEPENDS in message.headers:
            return WAITS
        if message.state == "dead":
            return None if self._able.past else DEAD
        if message.due - now > FURTHEST:
            return TOO_FAR
        if message.due - now > self._able.longest:
            return f"is due in more than {self._able.longest // 86_400_000:,} days"
        return None if message.key is None or self._able.keys else "has a key, and the other queue has none"

    def _take_pending(self, messages: Sequence[Stored]) -> Entries:
        batch = self._noted(messages)
        moved = self._engine.reschedule([Move(Ref(id=id), delay=AWAY, origin="due") for id in batch.ids])
        ids = [id for id, end in zip(batch.ids, moved, strict=True) if end is RescheduleResult.MOVED]
        away = [brought_back(each) for each in self._away(ids)]  # as it is now: somebody may have changed it since the scan
        return Entries(self._hold(away, batch.name), gone=len(messages) - len(away))

    def _take_dead(self, messages: Sequence[Stored]) -> Entries:
        batch = self._noted(messages)
        stored = [each for each in self._get(batch.ids) if each is not None and each.state == "dead"]
        return Entries(self._hold(stored, batch.name), gone=len(messages) - len(stored))

    def _noted(self, messages: Sequence[Stored]) -> Batch:
        """A batch that the next run knows of, should this one be killed; with those that are not finished yet."""
        if not self.log.now:
            self.log.begin()
        held = {batch for batch, _ in self._held.values()}
        batch = Batch(uuid4().hex[:12], [each.id for each in messages], self.log.now)
        self._batches = {name: each for name, each in self._batches.items() if name in held} | {batch.name: batch}
        self.log.write(list(self._batches.values()))
        return batch

    def _away(self, ids: Sequence[str]) -> list[Stored]:
        return [each for each in self._get(ids) if each is not None and is_away(each)]

    def _hold(self, messages: Sequence[Stored], batch: str) -> list[Found]:
        found = []
        for each in messages:
            name = f"{batch}/{each.id}/{fingerprint(each)}"
            self._held[name] = batch, each
            found.append(Found(name, message_of(each, self._able, self.log.now)))
        return found

    def finish(self, names: Sequence[str]) -> Sequence[str]:
        """End here what the other queue has. Gives those that somebody has changed meanwhile: they stay as they are."""
        with self._whole():
            return self._finished({name: self._held.pop(name)[1] for name in names})

    def _finished(self, held: Mapping[str, Stored]) -> list[str]:
        dead = {name: each for name, each in held.items() if each.state == "dead"}
        pending = {name: each for name, each in held.items() if each.state != "dead"}
        changed = [*self._cancelled(pending), *self._purged(dead)]
        # What another run has ended here, it has sent: then the copies, which are the same, stay.
        return changed if changed and self.log.is_ours() else []

    def _cancelled(self, held: Mapping[str, Stored]) -> list[str]:
        now = dict(zip(held, self._get([each.id for each in held.values()]), strict=True))
        same = [name for name, each in now.items() if each is not None and is_same(brought_back(each), held[name])]
        ended = self._cancel([Ref(id=held[name].id) for name in same])
        done = {name for name, each in zip(same, ended, strict=True) if each is CancelResult.CANCELLED}
        changed = [name for name in held if name not in done]
        self._bring_back([held[name].id for name in changed])
        return changed

    def _purged(self, held: Mapping[str, Stored]) -> list[str]:
        by_topic: dict[str, list[str]] = {}
        for each in held.values():
            by_topic.setdefault(each.topic, []).append(each.id)
        gone = sum(self._engine.purge(topic, "dead", ids).count for topic, ids in by_topic.items())
        if gone == len(held):
            return []
        left = dict(zip(held, self._get([each.id for each in held.values()]), strict=True))
        return [name for name, each in left.items() if each is not None]  # requeued meanwhile

    def give_back(self, names: Sequence[str]) -> None:
        held = [self._held.pop(name)[1] for name in names]
        self._left |= {each.id for each in held}
        with self._whole():
            self._bring_back([each.id for each in held if each.state != "dead"])

    def _bring_back(self, ids: Sequence[str]) -> None:
        """To their own times, but for those that somebody has given a new one."""
        if away := self._away(ids):
            self._engine.reschedule([Move(Ref(id=each.id), at=each.due - AWAY) for each in away])

    def close(self) -> None:
        """Forget the record of what is on its way, if nothing is. The engine is its owner's."""
        if not (self._looks or self._held or self._broken):
            self.log.end()

    def _get(self, ids: Sequence[str]) -> list[Stored | None]:
        return self._engine.get([Ref(id=id) for id in ids]) if ids else []

    def _cancel(self, refs: Sequence[Ref]) -> list[CancelResult]:
        return self._engine.cancel(refs) if refs else []
