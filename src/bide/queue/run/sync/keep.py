# Generated from ../aio/keep.py by tools/unasync.py; change that file instead.
"""The step of a result: what a handler returned is kept before its message ends, and those that have waited are called."""

from collections.abc import Sequence

from bide.engines.base import Ref
from bide.engines.results import Arrival, Kept
from bide.engines.sync import Engine
from bide.queue.deliveries import internals
from bide.queue.envelope import Envelope
from bide.queue.results import encoded
from bide.queue.run.message import Handling
from bide.queue.sync.results import Dependents


class KeepStep:
    """If it fails on its way, it is repeated: by the worker, or when the handler has run again."""

    def __init__(self, engine: Engine, envelope: Envelope) -> None:
        self._engine = engine
        self._envelope = envelope
        self._dependents = Dependents(engine)

    def kept(self, handling: Handling, lasts: int) -> Kept | None:
        """What is to be kept. None: the handler has ended its delivery by itself, and not because its work is done."""
        delivery = handling.delivery
        if handling.ended and (self._engine.get([Ref(delivery.id)]))[0] is not None:
            return None
        value = encoded(self._envelope, internals(delivery).returned, handling.task.name, delivery.id)
        return Kept(delivery.id, lasts, value, delivery.token)

    def fulfil(self, kept: Sequence[Kept]) -> list[list[Arrival]]:
        """Keep these. Gives for each those that have waited for it, as the last of several perhaps."""
        told = self._engine.results.fulfil(kept)
        return [[Arrival(dependent, each.id) for dependent in found] for each, found in zip(kept, told, strict=True)]

    def arrive(self, arrivals: Sequence[Arrival]) -> list[None]:
        """Call those that have nothing left to wait for."""
        self._dependents.arrive(arrivals)
        return [None] * len(arrivals)
