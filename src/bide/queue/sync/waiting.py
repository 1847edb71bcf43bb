# Generated from ../aio/waiting.py by tools/unasync.py; change that file instead.
"""What waits in an outbox, by its id or by its key in the queue: it is moved and shown as if it were there."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from bide.engines.base import MAX_BATCH, End, Move, Ref, Stored
from bide.engines.sync import Engine
from bide.errors import BideError, Unsupported
from bide.queue import outbox
from bide.queue.withdrawn import Brought, Failures
from bide.types import CancelResult, RescheduleResult, State

Bring: TypeAlias = Callable[[Sequence[Stored], bool, Failures], list[Brought]]
STATES: tuple[State, ...] = ("ready", "leased", "scheduled", "ready")  # the last again: a relay may have given back meanwhile
TRIES = 3  # to take a message from a relay, which may give it back at that moment


class Waiting:
    def __init__(self, store: Engine, target: Engine, bring: Bring) -> None:
        """`bring`: hands them on, whoever has them."""
        self._store = store
        self._target = target
        self._bring = bring

    def each(self) -> Iterator[Stored]:
        """All that is in the outbox, some of it twice."""
        page = self._store.scan(outbox.TOPIC, None, MAX_BATCH)
        if page.after is None:
            for each in page.messages:
                yield each
            return
        # too many for one look, which would see each of them in one state
        while self._store.tend().more:  # of the leases that are over, which are told behind all that is ready
            pass
        for state in STATES:
            after: str | None = None
            while True:
                page = self._store.scan(outbox.TOPIC, state, MAX_BATCH, after)
                for each in page.messages:
                    yield each
                if (after := page.after) is None:
                    break

    def of(self, names: Collection[outbox.Name]) -> list[Stored]:
        """All that wait for these names, in the order in which they were sent."""
        found = {each.id: each for each in self.each() if each.state != "dead" and outbox.name_of(each.body) in names}
        return [found[id] for id in sorted(found)]

    def take_out(self, ids: Sequence[str]) -> list[CancelResult]:
        """Whoever has it: if a relay is handing it on, it does so by an operation that the queue knows, or nothing is known.
        RUNNING, if it was given back and claimed again each time.
        """
        results = dict.fromkeys(ids, CancelResult.RUNNING)
        for _ in range(TRIES):
            if left := [id for id, result in results.items() if result is CancelResult.RUNNING]:
                results |= zip(left, self._take_out(left), strict=True)
        return [results[id] for id in ids]

    def _take_out(self, ids: Sequence[str]) -> list[CancelResult]:
        refs = [Ref(id) for id in ids]
        results = self._store.cancel(refs)
        running = [i for i, result in enumerate(results) if result is CancelResult.RUNNING]
        if running:
            held = self._store.get([refs[i] for i in running])
            tokens = [(i, each.token) for i, each in zip(running, held, strict=True) if each is not None]
            ends = [(i, End(outbox.TOPIC, ids[i], token, "done")) for i, token in tokens if token is not None]
            ended = self._store.settle([end for _, end in ends]) if ends else []
            for (i, _), told in zip(ends, ended, strict=True):
                results[i] = CancelResult.CANCELLED if told == "done" else results[i]
        return results

    def reschedule(self, move: Move, connection: object | None) -> RescheduleResult:
        """What waits is handed on first, and then moved in the queue."""
        self._store.open()
        if connection is not None:
            raise Unsupported("A message that is sent through an outbox is moved after the commit: leave connection= out.")
        which, waiting = self._meant(move.ref)
        if waiting and not self._target.capabilities.idempotent:
            raise Unsupported(
                "This queue's engine can't move messages, nor can its outbox: cancel the message, and send it again."
            )
        for each in waiting:
            if each.state == "dead":
                return RescheduleResult.DEAD
            [sent] = self._bring([each], move.origin != "due", {})
            if isinstance(sent, BideError):
                raise sent
            if sent is None:
                continue
            self.take_out([each.id])
            if which.id is not None:
                which = Ref(sent.id)
        move = replace(move, ref=which)
        [result] = self._target.reschedule([move])
        return result

    def get(self, which: Ref, now: int) -> Stored | None:
        """What is in the queue, or else what waits."""
        self._store.open()
        if which.id is not None:
            return outbox.shown(self._found(which.id), now)
        waiting = self.of([outbox.name(which)])
        [there] = self._target.get([which])
        return there or next((each for each in (outbox.shown(each, now) for each in waiting) if each is not None), None)

    def _meant(self, which: Ref) -> tuple[Ref, Sequence[Stored]]:
        if which.id is not None:
            found = self._found(which.id)
            which = outbox.meant(which, found)
            if which.id is not None:
                return which, [found]
        return which, self.of([outbox.name(which)])

    def find(self, ids: Sequence[str]) -> list[Stored | None]:
        """By the ids that their senders were told."""
        return self._store.get([outbox.private(id) for id in ids])

    def _found(self, id: str) -> Stored:
        [found] = self.find([id])
        if found is None:
            raise outbox.missing([id])
        return found
