# Generated from ../aio/waiting.py by tools/unasync.py; change that file instead.
"""What waits in an outbox, by its id or by its key in the queue: it is cancelled, moved and shown as if it were there."""

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from bide.engines.base import MAX_BATCH, End, Move, Ref, Stored
from bide.engines.guard.hooks import BadHook
from bide.engines.sync import Engine
from bide.errors import BadMessage, OutcomeUnknown, QueueFull, Unavailable, Unsupported
from bide.queue import outbox
from bide.types import CancelResult, RescheduleResult, Sent, State

Answer: TypeAlias = Sent | None
STATES: tuple[State, ...] = ("ready", "leased", "scheduled", "ready")  # the last again: a relay may have given back meanwhile


class Waiting:
    """`bring`: hands one on, whoever has it, and it is sent once. It gives the queue's answer, or None if it has expired."""

    def __init__(self, store: Engine, target: Engine, bring: Callable[[Stored, bool], Answer]) -> None:
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

    def cancel(self, which: Ref, connection: object | None) -> CancelResult:
        """What is pending decides, as in the queue, where one with its key may run. What waits is handed on first, and
        cancelled in the queue: a relay that has it, or had it and died, sends it by the same operation, so does nothing then.
        """
        self._store.open()
        if connection is not None:
            return self._cancel_joined(which, connection)
        which, waiting = self._meant(which)
        results: list[CancelResult] = []
        try:
            self._withdraw(waiting, results)
            if which.id is None:
                results += self._target.cancel([which])
            elif results == [CancelResult.GONE] and not self._target.capabilities.idempotent:
                self._found(which.id)  # a relay may have handed it on meanwhile
        except (BadHook, QueueFull, Unavailable) as error:
            if CancelResult.CANCELLED in results:
                raise OutcomeUnknown(
                    "What waited in the outbox is cancelled there. Whether the queue has it, or another message with its "
                    f"key, is not known: cancel again by the key. {error}"
                ) from error
            raise
        for decides in (CancelResult.CANCELLED, CancelResult.RUNNING, CancelResult.DEAD):
            if decides in results:
                return decides
        return CancelResult.GONE

    def _cancel_joined(self, which: Ref, connection: object) -> CancelResult:
        if which.id is not None:
            [found] = self._store.get([self._private(which.id)])  # None: it is not committed
            if found is None or not found.attempt:
                [result] = self._store.cancel([self._private(which.id)], connection=connection)
                if result is CancelResult.CANCELLED:
                    return result
        raise Unsupported(
            "In a transaction only what waits in the outbox can be cancelled, by the id that send returned, and not while a "
            "relay has it or tries it again. Cancel by the id or the key after the commit, without connection=."
        )

    def _withdraw(self, waiting: Sequence[Stored], results: list[CancelResult]) -> None:
        """All of them. Raises at the end, if the queue could not be asked about one."""
        failed: BadHook | QueueFull | Unavailable | None = None
        for each in waiting:
            if each.state == "dead" or not self._target.capabilities.idempotent:
                never = each.state == "dead" or not each.attempt  # in the queue
                results += self._store.cancel([Ref(each.id)]) if never else [CancelResult.RUNNING]
                continue
            if failed is not None:
                results.append(self.take_out(each.id))
                continue
            try:
                sent = self._bring(each, True)
                results += [CancelResult.GONE] if sent is None else self._target.cancel([Ref(sent.id)])
            except (BadMessage, Unsupported, QueueFull, Unavailable) as error:
                results.append(self.take_out(each.id))
                if isinstance(error, BadHook | QueueFull | Unavailable):  # else the queue does not have it
                    failed = error
        if failed is not None:
            raise failed

    def take_out(self, id: str) -> CancelResult:
        """Whoever has it: if a relay is handing it on, it does so by an operation that the queue knows, or nothing is known."""
        [result] = self._store.cancel([Ref(id)])
        if result is CancelResult.RUNNING:
            [held] = self._store.get([Ref(id)])
            if held is not None and held.token is not None:
                ended = self._store.settle([End(outbox.TOPIC, id, held.token, "done")])
                return CancelResult.CANCELLED if ended == ["done"] else result
        return result

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
            sent = self._bring(each, move.origin != "due")
            if which.id is not None and sent is not None:
                which = Ref(sent.id)
        move = replace(move, ref=which)
        [result] = self._target.reschedule([move])
        return result

    def get(self, which: Ref, now: int) -> Stored | None:
        """What is in the queue, or else what waits."""
        self._store.open()
        if which.id is not None:
            return outbox.shown(self._found(which.id), now)
        waiting = self.of([_name(which)])
        [there] = self._target.get([which])
        return there or next((each for each in (outbox.shown(each, now) for each in waiting) if each is not None), None)

    def _meant(self, which: Ref) -> tuple[Ref, Sequence[Stored]]:
        """One that has a key is named by it: what was sent before with its key would go on in its place."""
        if which.id is not None:
            found = self._found(which.id)
            name = outbox.name_of(found.body)
            if found.state == "dead" or name is None or name.key is None:
                return which, [found]
            which = Ref(topic=name.topic, key=name.key)
        return which, self.of([_name(which)])

    def _found(self, id: str) -> Stored:
        [found] = self._store.get([self._private(id)])
        if found is None:
            raise Unsupported(
                f"{id} is not in the outbox: its transaction is not committed or was rolled back, or the message was "
                "handed on and has another id in the queue. Give messages a key, and name them by it."
            )
        return found

    def _private(self, id: str) -> Ref:
        return Ref(id.removeprefix(outbox.PREFIX))


def _name(which: Ref) -> outbox.Name:
    return outbox.Name(which.topic or "", which.key)
