# Generated from ../aio/withdrawal.py by tools/unasync.py; change that file instead.
"""Cancels what waits in an outbox. It is handed on first, and cancelled in the queue: a relay that has it, or had it and died,
sends it by the same operation, so does nothing then.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TypeAlias

from bide.engines.base import MAX_BATCH, Ref, Stored
from bide.engines.sync import Engine
from bide.errors import BideError, OutcomeUnknown, Unsupported
from bide.queue import outbox
from bide.queue.sync.waiting import Bring, Waiting
from bide.queue.withdrawn import Brought, Lot, Told, again, is_refused, reason
from bide.types import CancelResult, Sent

Cancel: TypeAlias = Callable[[Sequence[Ref]], list[CancelResult]]
Piece: TypeAlias = tuple[Lot, Stored]


class Withdrawal:
    """For one call. Of all that wait with a key the first are handed on together, then the second, and so on."""

    def __init__(self, store: Engine, waiting: Waiting, bring: Bring, cancel: Cancel, *, idempotent: bool) -> None:
        """`cancel`: in the queue. `idempotent`: its engine remembers operations."""
        self._store = store
        self._waiting = waiting
        self._bring = bring
        self._cancel_there = cancel
        self._idempotent = idempotent
        self._lots: dict[Ref, Lot] = {}  # by what is asked for, and by the ids of all that wait with it

    def cancel(self, refs: Sequence[Ref], connection: object | None) -> list[Told]:
        """The result or the error of each. If the outbox does not answer, it is the last one, and the rest was not tried."""
        told: list[Told] = []
        try:
            self._store.open()
            for begin in range(0, len(refs), MAX_BATCH):
                part = refs[begin : begin + MAX_BATCH]
                if connection is None:
                    told += self._cancel_part(part)
                else:
                    for which in part:
                        told.append(self._cancel_joined(which, connection))
        except BideError as error:
            told.append(error)
        return told

    def _cancel_joined(self, which: Ref, connection: object) -> Told:
        if (lot := self._lots.get(which)) is not None:
            return again(lot.told())
        if which.id is not None:
            [found] = self._waiting.find([which.id])  # None: it is not committed
            if found is None or not found.attempt:
                [result] = self._store.cancel([outbox.private(which.id)], connection=connection)
                if result is CancelResult.CANCELLED:
                    lot = self._lots[which] = Lot(which, ())
                    lot.results.append(result)
                    return result
        return Unsupported(
            "In a transaction only what waits in the outbox can be cancelled, by the id that send returned, and not while a "
            "relay has it or tries it again. Cancel by the id or the key after the commit, without connection=."
        )

    def _cancel_part(self, part: Sequence[Ref]) -> list[Told]:
        self._withdraw(self._look([which for which in dict.fromkeys(part) if which not in self._lots]))
        told: list[Told] = []
        for which in part:
            lot = self._lots[which]
            told.append(again(lot.told()) if lot.asked else lot.told())
            lot.asked = True
        return told

    def _look(self, refs: Sequence[Ref]) -> list[Lot]:
        """What waits for these, but for what waits with one that was looked for before."""
        meant: dict[Ref, Ref] = {which: which for which in refs if which.id is None}
        ids = [which.id for which in refs if which.id is not None]
        found = self._waiting.find(ids) if ids else []
        alone: dict[Ref, Stored] = {}
        for id, stored in zip(ids, found, strict=True):
            if stored is not None:
                meant[Ref(id)] = name = outbox.meant(Ref(id), stored)
                alone |= {name: stored} if name.id is not None else {}
        names = {outbox.name(name) for name in meant.values() if name.id is None and name not in self._lots}
        waiting: dict[outbox.Name | None, list[Stored]] = defaultdict(list)
        for each in self._waiting.of(names) if names else ():
            waiting[outbox.name_of(each.body)].append(each)
        lots: list[Lot] = []
        for which, name in meant.items():
            if name not in self._lots:
                lot = self._lots[name] = Lot(name, [alone[name]] if name.id is not None else waiting[outbox.name(name)])
                self._lots |= {Ref(outbox.PREFIX + each.id): lot for each in lot.waiting}
                lots.append(lot)
            self._lots[which] = self._lots[name]
        if missing := [id for id, stored in zip(ids, found, strict=True) if stored is None]:
            lot = Lot(Ref(missing[0]), ())
            lot.fail(outbox.missing(missing))
            self._lots |= dict.fromkeys(map(Ref, missing), lot)
        return lots

    def _withdraw(self, lots: Sequence[Lot]) -> None:
        while some := [(lot, lot.waiting.popleft()) for lot in lots if lot.waiting]:
            here = [piece for piece in some if piece[1].state == "dead"]
            pending = [piece for piece in some if piece[1].state != "dead"]
            if self._idempotent:
                self._hand_on(pending)
            else:
                here += [piece for piece in pending if not piece[1].attempt]  # has never been in the queue
                for lot in [lot for lot, each in pending if each.attempt]:
                    lot.results.append(CancelResult.RUNNING)
            self._cancel_here(here, self._cancel_unclaimed)
        keyed = [lot for lot in lots if lot.keyed and lot.failed is None]
        self._cancel(keyed, [lot.which for lot in keyed])
        if not self._idempotent:
            self._miss([(lot, id) for lot in lots if lot.results == [CancelResult.GONE] and (id := lot.which.id) is not None])

    def _hand_on(self, some: Sequence[Piece]) -> None:
        """And cancel it in the queue. Without a clear answer it stays, so that it can be cancelled again by its id."""
        some = [piece for piece in some if not piece[0].doubtful]
        asked = [piece for piece in some if piece[0].failed is None]
        out = [piece for piece in some if piece[0].failed is not None]
        there: list[tuple[Piece, Ref]] = []
        for piece, sent in zip(asked, self._brought(asked), strict=True):
            lot = piece[0]
            if isinstance(sent, Sent):
                there.append((piece, Ref(sent.id)))
            elif sent is None:
                lot.results.append(CancelResult.GONE)
            else:
                if not is_refused(sent):  # else the queue does not have it
                    lot.fail(sent)
                out += [] if lot.doubtful else [piece]
        self._cancel([lot for (lot, _), _ in there], [which for _, which in there])
        done = [piece for piece, _ in there if piece[0].failed is None]
        try:
            self._waiting.take_out([each.id for _, each in done])
        except BideError as error:
            for lot, _ in done:
                lot.stay(error)
        self._cancel_here(out, self._waiting.take_out)

    def _brought(self, some: Sequence[Piece]) -> Sequence[Brought]:
        try:
            return self._bring([each for _, each in some], True) if some else []
        except BideError as error:
            for lot, _ in some:
                lot.lose(error)
            return [error] * len(some)

    def _cancel(self, lots: Sequence[Lot], refs: Sequence[Ref]) -> None:
        """In the queue."""
        if not lots:
            return
        answers: Sequence[CancelResult | None] = ()
        sure: Sequence[CancelResult | None] = ()
        failed: BideError | None = None
        try:
            answers = sure = self._cancel_there(refs)
        except BideError as error:
            failed = reason(error)
            if isinstance(error, OutcomeUnknown):
                answers, sure = error.done or error.answers, error.answers
        nothing = [None] * len(lots)
        for lot, answer, known in zip(lots, answers or nothing, sure or nothing, strict=True):
            if answer is not None:
                lot.results.append(answer)
                if known is None and failed is not None:
                    lot.fall_short(failed)
            elif failed is not None:
                lot.fail(failed)

    def _cancel_unclaimed(self, ids: Sequence[str]) -> list[CancelResult]:
        return self._store.cancel([Ref(id) for id in ids])

    def _cancel_here(self, some: Sequence[Piece], cancel: Callable[[Sequence[str]], list[CancelResult]]) -> None:
        """In the outbox."""
        try:
            results = cancel([each.id for _, each in some]) if some else []
        except BideError as error:
            for lot, _ in some:
                lot.lose(error)
            return
        for (lot, _), result in zip(some, results, strict=True):
            lot.results.append(result)

    def _miss(self, gone: Sequence[tuple[Lot, str]]) -> None:
        """A relay may have handed them on meanwhile, to a queue that can't tell."""
        found = self._waiting.find([id for _, id in gone]) if gone else []
        for (lot, id), stored in zip(gone, found, strict=True):
            if stored is None:
                lot.fail(outbox.missing([id]))
