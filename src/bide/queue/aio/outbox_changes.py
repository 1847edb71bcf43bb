# unasync: ../sync/outbox_changes.py
"""Messages in an outbox that are to be cancelled or moved, whoever has them.

What is cancelled is handed on first, and cancelled in the queue: a relay that has it, or had it and died, sends it by the same
operation, so does nothing then. It leaves the outbox when it is known that nothing is left of it.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, Capabilities, Ref, Stored
from bide.engines.each import error_of_each
from bide.errors import BadMessage, BideError, EngineError, OutcomeUnknown, QueueFull, Unsupported
from bide.queue import outbox
from bide.queue.aio.outbox_messages import LEASE, AsyncOutboxMessages, Bring
from bide.queue.outbox import Brought, Failures, Fate, Sought, Told, Withdrawn, is_refused, is_untouched, reason
from bide.queue.relay import Kept
from bide.types import CancelResult, Sent

HELD = 5_000  # ms for which what is to be cancelled or moved is not delivered
TWICE = 2  # calls that a part of the queue fails before it is not asked any more; one may have failed for a single message

Name: TypeAlias = Callable[[Sequence[Kept], Sequence[Sent], int], Awaitable[None]]


class AsyncOutboxChanges:
    def __init__(self, store: AsyncEngine, target: AsyncEngine, name: Name) -> None:
        """`name`: remembers which ids messages have in the queue."""
        self._store = store
        self._target = target
        self._name = name

    async def bring(self, some: Sequence[Stored], briefly_held: bool, failures: Failures) -> list[Brought]:
        """Each is sent once, and stays in the outbox until it is taken out. Gives the queue's answer or error to each, or None
        if it has expired. `briefly_held`: it is not due at once, as it is to be changed now. `failures`: so far; those that
        come now are added.
        """
        now = (await self._store.claim([outbox.NOBODY], 1, LEASE)).now  # the time of its database: nothing is there
        told: dict[str, Brought] = {}
        kept: list[Kept] = []
        for each in some:
            claimed = outbox.claimed_of(each)
            try:
                new = outbox.handed_on(claimed, now, once=True)
            except (BadMessage, Unsupported) as error:
                told[each.id] = error
                continue
            if new is None:
                told[each.id] = None
                continue
            if briefly_held and (new.delay if new.at is None else new.at - now) < HELD:
                new = replace(new, at=None, delay=HELD)
            kept.append((claimed, new))
        for one in await self._put(kept, told, failures):
            await self._put([one], told, failures)
        there = [(each, sent) for each in kept if isinstance(sent := told[each[0].id], Sent)]
        try:
            if there:
                await self._name([each for each, _ in there], [sent for _, sent in there], now)
        except BideError as error:
            told |= {each[0].id: OutcomeUnknown(f"It is in the queue, but its outbox failed: {error}") for each, _ in there}
        return [told[each.id] for each in some]

    async def _put(self, kept: Sequence[Kept], told: dict[str, Brought], failures: Failures) -> Sequence[Kept]:
        """Gives those that are to be tried one by one: they were refused with others."""
        away = {part: errors[-1] for part, errors in failures.items() if len(errors) >= TWICE}
        if away:
            told |= {each[0].id: away[part] for each in kept if (part := self._target.part_of(each[1])) in away}
            kept = [each for each in kept if self._target.part_of(each[1]) not in away]
        if not kept:
            return ()
        answers: Sequence[Sent | None] = [None] * len(kept)
        errors: Sequence[BideError | None] = [None] * len(kept)
        try:
            answers = await self._target.put([new for _, new in kept])
        except BideError as error:
            errors = [reason(own or error) for own in error_of_each(error, len(kept))]
            if isinstance(error, OutcomeUnknown):  # what is not confirmed is there; what follows tells whether that is
                answers = error.done or error.answers or answers
        told |= {each[0].id: sent or own for each, sent, own in zip(kept, answers, errors, strict=True)}
        rest = [(each, own) for each, sent, own in zip(kept, answers, errors, strict=True) if sent is None]
        failed = [(new, own) for (_, new), own in rest if isinstance(own, EngineError) and not isinstance(own, QueueFull)]
        for part, own in {self._target.part_of(new): own for new, own in failed}.items():
            failures.setdefault(part, []).append(own)
        return [each for each, own in rest if isinstance(own, BadMessage | Unsupported | QueueFull)] if len(kept) > 1 else []


Cancel: TypeAlias = Callable[[Sequence[Ref]], Awaitable[list[CancelResult]]]
Here: TypeAlias = Callable[[Sequence[str]], Awaitable[list[CancelResult]]]


class AsyncWithdrawal:
    """For one call. Of all that wait with a key the first are handed on together, then the second, and so on."""

    def __init__(
        self, store: AsyncEngine, waiting: AsyncOutboxMessages, bring: Bring, cancel: Cancel, queue: Capabilities
    ) -> None:
        """`cancel`: in the queue. `queue`: what its engine can do."""
        self._store = store
        self._waiting = waiting
        self._bring = bring
        self._cancel_there = cancel
        self._queue = queue
        self._failures: Failures = {}
        self._meant: dict[Ref, Sought] = {}
        self._fates: dict[Ref, Fate] = {}  # by the ids of what is asked for, and of all that waits with it
        self._missing: list[str] = []
        self._alone = 0  # how many have failed in the outbox when they were tried alone
        self._unknown = Fate()  # of all that is missing

    async def cancel(self, refs: Sequence[Ref], connection: object | None) -> list[Told]:
        """The result or the error of each. If the outbox does not answer, the rest was not tried, and is not told."""
        tried, failed = 0, None
        size = MAX_BATCH if connection is None else 1
        try:
            while tried < len(refs):
                part = refs[tried : tried + size]
                tried += len(part)
                await self._store.open()
                if connection is None:
                    await self._withdraw(await self._look([which for which in part if which not in self._fates]))
                else:
                    await self._cancel_joined(part[0], connection)
        except BideError as error:
            failed = error
            for fate in self._fates.values():
                if fate.result is None and fate.error is None:
                    fate.error = error
        self._unknown.error = outbox.missing(self._missing) if self._missing else None
        return [self._told(which, failed) for which in refs[:tried]]

    def _told(self, which: Ref, failed: BideError | None) -> Told:
        return (self._fates.get(which) or self._meant.get(which) or Fate(None, failed)).told()

    async def _cancel_joined(self, which: Ref, connection: object) -> None:
        if which in self._fates:
            return
        if which.id is not None:
            [found] = await self._waiting.find([which.id])  # None: it is not committed
            if found is None or not found.attempt:
                [result] = await self._store.cancel([outbox.private(which.id)], connection=connection)
                if result is CancelResult.CANCELLED:
                    self._fates[which] = Fate(result)
                    return
        text = (
            "In a transaction only what waits in the outbox can be cancelled, by the id that send returned, and not while a "
            "relay has it or tries it again. Cancel by the id or the key after the commit, without connection=."
        )
        self._fates[which] = Fate(None, Unsupported(text))

    async def _look(self, refs: Sequence[Ref]) -> list[Sought]:
        """What waits for these, but for what waits with one that was looked for before."""
        ids = list(dict.fromkeys(which.id for which in refs if which.id is not None))
        found = dict(zip(ids, await self._waiting.find(ids) if ids else (), strict=True))
        there = {each.id: each for each in found.values() if each is not None}
        names = [outbox.meant(Ref(outbox.PREFIX + id), each) for id, each in there.items()]
        keys = [which for which in dict.fromkeys((*refs, *names)) if which.id is None]
        if keys:
            there |= {each.id: each for each in await self._waiting.of({outbox.name(which) for which in keys})}
        meant = {which: self._meant.setdefault(which, Sought(which)) for which in keys}
        for id in sorted(there):
            name = Ref(outbox.PREFIX + id)
            which = outbox.meant(name, there[id])
            named = meant[which] = self._meant.setdefault(which, Sought(which))
            named.add(there[id])
            self._fates[name] = named.fates[id]
        for asked, stored in found.items():
            self._fates[Ref(asked)] = self._unknown if stored is None else self._fates[Ref(outbox.PREFIX + stored.id)]
        self._missing += [asked for asked, stored in found.items() if stored is None]
        return list(meant.values())

    async def _withdraw(self, meant: Sequence[Sought]) -> None:
        while some := [named.waiting.popleft() for named in meant if named.waiting]:
            here = [piece for piece in some if piece.stored.state == "dead"]
            pending = [piece for piece in some if piece.stored.state != "dead"]
            if self._queue.idempotent:
                here += await self._hand_on(pending)
            else:
                here += [piece for piece in pending if piece.new]
                for piece in pending:
                    piece.fate.result = CancelResult.RUNNING
            for piece, told in zip(here, await self._here(here, self._cancel_unclaimed), strict=True):
                piece.fate.result, piece.fate.error = (None, told) if isinstance(told, BideError) else (told, None)
        keyed = [named for named in meant if named.keyed and named.failed is None and (self._queue.cancel or not named.fates)]
        await self._cancel([named.there for named in keyed], [named.which for named in keyed])
        if not self._queue.idempotent:
            await self._miss([named for named in meant if not named.keyed and named.told() is CancelResult.GONE])

    async def _hand_on(self, some: Sequence[Withdrawn]) -> list[Withdrawn]:
        """And cancel it in the queue. Gives those that can't be there: the queue refuses them, and no relay had them."""
        asked = [piece for piece in some if piece.named.failed is None]
        answers = await self._bring([piece.stored for piece in asked], True, self._failures) if asked else ()
        brought: dict[str, Brought] = {piece.stored.id: sent for piece, sent in zip(asked, answers, strict=True)}
        there: list[tuple[Withdrawn, Ref]] = []
        left: list[Withdrawn] = []
        never: list[Withdrawn] = []
        for piece in some:
            sent = brought.get(piece.stored.id, piece.named.failed)
            if isinstance(sent, Sent):
                there.append((piece, Ref(sent.id)))
            elif sent is None:
                piece.fate.result = CancelResult.GONE
            elif is_refused(sent) and piece.new:
                never.append(piece)
            else:
                piece.fail(sent)
                left += [piece] if is_untouched(sent) else []
        await self._cancel([piece.fate for piece, _ in there], [which for _, which in there])
        for piece, _ in there:
            if piece.fate.result is None and piece.fate.error is not None:
                piece.fail(piece.fate.error)
        done = [piece for piece, _ in there if piece.fate.final]
        for piece, told in zip(done, await self._here(done, self._waiting.take_out), strict=True):
            piece.end(told)
        await self._leave(left)
        return never

    async def _cancel(self, fates: Sequence[Fate], refs: Sequence[Ref]) -> None:
        """In the queue."""
        if not fates:
            return
        answers: Sequence[CancelResult | None] = ()
        sure: Sequence[CancelResult | None] = ()
        failed: BideError | None = None
        try:
            answers = sure = await self._cancel_there(refs)
        except BideError as error:
            failed = reason(error)
            if isinstance(error, OutcomeUnknown):
                answers, sure = error.done or error.answers, error.answers
        nothing = [None] * len(fates)
        for fate, answer, known in zip(fates, answers or nothing, sure or nothing, strict=True):
            fate.result = answer
            fate.error = failed if known is None else None

    async def _leave(self, left: Sequence[Withdrawn]) -> None:
        """The queue has taken nothing, but may have it from a relay. It stays if nothing could name it in the queue."""
        keyed = [piece for piece in left if piece.named.keyed]
        new = [piece for piece in left if piece.new and not piece.named.keyed]
        told = [*await self._here(keyed, self._waiting.take_out), *await self._here(new, self._cancel_unclaimed)]
        gone = {piece.stored.id: each for piece, each in zip(keyed + new, told, strict=True)}
        for piece in left:
            piece.leave(gone.get(piece.stored.id, CancelResult.RUNNING))

    async def _cancel_unclaimed(self, ids: Sequence[str]) -> list[CancelResult]:
        return await self._store.cancel([Ref(id) for id in ids])

    async def _here(self, some: Sequence[Withdrawn], cancel: Here) -> list[Told]:
        """In the outbox. If that fails, they are tried one by one, as some may be locked, until two of a call fail."""
        told: list[Told] = []
        try:
            told += await cancel([piece.stored.id for piece in some]) if some else ()
        except BideError as error:
            self._alone += len(some) == 1
            for piece in some if len(some) > 1 else ():
                told += await self._here([piece], cancel) if self._alone < 2 else [error]
            return told or [error]
        return told

    async def _miss(self, gone: Sequence[Sought]) -> None:
        """A relay may have handed them on meanwhile, to a queue that can't tell."""
        self._fates |= {named.which: Fate() for named in gone}
        ids = [id for named in gone if (id := named.which.id) is not None]
        for id, stored in zip(ids, await self._waiting.find(ids) if ids else (), strict=True):
            self._fates[Ref(id)] = self._unknown if stored is None else Fate(CancelResult.GONE)
            self._missing += [id] if stored is None else []
