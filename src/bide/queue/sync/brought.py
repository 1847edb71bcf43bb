# Generated from ../aio/brought.py by tools/unasync.py; change that file instead.
"""Hands on what waits in an outbox and is to be cancelled or moved, whoever has it: in the queue it can be named."""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from msgspec.structs import replace

from bide.engines.base import Stored
from bide.engines.each import error_of_each
from bide.engines.sync import Engine
from bide.errors import BadMessage, BideError, EngineError, OutcomeUnknown, QueueFull, Unsupported
from bide.queue import outbox
from bide.queue.away import Kept
from bide.queue.sync.turns import LEASE
from bide.queue.withdrawn import Brought, Failures, reason
from bide.types import Sent

HELD = 5_000  # ms for which what is to be cancelled or moved is not delivered
TWICE = 2  # calls that a part of the queue fails before it is not asked any more; one may have failed for a single message

Name: TypeAlias = Callable[[Sequence[Kept], Sequence[Sent], int], None]


class Bringing:
    def __init__(self, store: Engine, target: Engine, name: Name) -> None:
        """`name`: remembers which ids messages have in the queue."""
        self._store = store
        self._target = target
        self._name = name

    def bring(self, some: Sequence[Stored], briefly_held: bool, failures: Failures) -> list[Brought]:
        """Each is sent once, and stays in the outbox until it is taken out. Gives the queue's answer or error to each, or None
        if it has expired. `briefly_held`: it is not due at once, as it is to be changed now. `failures`: so far; those that
        come now are added.
        """
        now = self._store.claim([outbox.NOBODY], 1, LEASE).now  # the time of its database: nothing is there
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
        for one in self._put(kept, told, failures):
            self._put([one], told, failures)
        there = [(each, sent) for each in kept if isinstance(sent := told[each[0].id], Sent)]
        try:
            if there:
                self._name([each for each, _ in there], [sent for _, sent in there], now)
        except BideError as error:
            told |= {each[0].id: OutcomeUnknown(f"It is in the queue, but its outbox failed: {error}") for each, _ in there}
        return [told[each.id] for each in some]

    def _put(self, kept: Sequence[Kept], told: dict[str, Brought], failures: Failures) -> Sequence[Kept]:
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
            answers = self._target.put([new for _, new in kept])
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
