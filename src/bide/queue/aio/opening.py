# unasync: ../sync/opening.py
"""From what a claim has brought to deliveries: bodies are read."""

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec.structs import replace

from bide.core.codec import JSON, decode
from bide.core.formats import plural
from bide.engines.aio import AsyncEngine
from bide.engines.base import Claim, Claimed, End, Ended, Hold
from bide.engines.lots import Lot
from bide.errors import BadMessage, EngineError
from bide.logs import Log
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.attempts import record_of
from bide.queue.batching import AsyncBatching
from bide.queue.beats import Asked
from bide.queue.deliveries import UNREAD, Read
from bide.queue.envelope import Envelope
from bide.queue.subscriptions import UNHEARD, Subscriptions

_log = Log("bide.intake")

Reader: TypeAlias = Callable[[bytes], dict[str, Any] | None]
"""Reads the arguments of a handler from JSON, or gives None where it can't."""
NO_READERS: Mapping[str, Reader] = {}


class AsyncOpener:
    def __init__(
        self,
        engine: AsyncEngine,
        envelope: Envelope,
        settles: AsyncBatching[End, Ended],
        subscriptions: Subscriptions = UNHEARD,
    ) -> None:
        self._engine = engine
        self._envelope = envelope
        self._settles = settles
        self._subscriptions = subscriptions

    async def open(self, claim: Claim, asked: Asked | None = None) -> list[AsyncDelivery]:
        """Deliveries of what can be read."""
        read = await self.read(claim, asked)
        now, engine, settles = read.now, self._engine, self._settles
        found: list[AsyncDelivery] = []
        for claimed, body in zip(read.messages, read.bodies, strict=True):
            delivery = AsyncDelivery(claimed, body, now, engine, settles)
            delivery.at_work = read.at_work
            found.append(delivery)
        return found

    def delivery(self, claimed: Claimed, body: Any, now: int, arguments: dict[str, Any] | None) -> AsyncDelivery:
        """Of a message that was read."""
        return AsyncDelivery(claimed, body, now, self._engine, self._settles, arguments)

    async def read(self, claim: Claim, asked: Asked | None = None, readers: Mapping[str, Reader] = NO_READERS) -> Read:
        """A message whose body can't be read goes to the dead letters, where people can look at it.

        asked: the claim is looked after under its name. If its answer was late, what others have taken back is left out.
        readers: by topic. Where one can read the arguments of a handler, the body is not read until somebody asks for it.
        """
        if asked is not None and asked.late and claim.messages:
            claim = await self._still_held(claim, asked.lease_ms)
        at_work = None
        if self._subscriptions.heard:
            self._subscriptions.begun(claim.messages, claim.now)
            at_work = time.monotonic()
        codec, limit, messages = self._envelope.codec, self._envelope.max_body, claim.messages
        usable = readers if codec is JSON else NO_READERS
        if isinstance(messages, Lot) and (read := _arguments(messages, usable, limit)) is not None:
            return Read(messages, read, [UNREAD] * len(read), claim.now, at_work)
        known, arguments, bodies = list[Claimed](), list[dict[str, Any] | None](), list[Any]()
        for claimed in messages:
            reader = usable.get(claimed.topic)
            given = reader(claimed.body) if reader is not None and len(claimed.body) <= limit else None
            try:
                body = UNREAD if given is not None else decode(codec, claimed.body, limit)
            except BadMessage as error:
                _log.error("Message %s of %s can't be read and is buried: %s", claimed.id, claimed.topic, error)
                await self._bury(claimed, str(error), claim.now)
            else:
                known.append(claimed)
                arguments.append(given)
                bodies.append(body)
        return Read(known, arguments, bodies, claim.now, at_work)

    async def _bury(self, claimed: Claimed, reason: str, now: int) -> None:
        """What can't be buried now must not keep those that came with it from being handled."""
        try:
            trace = record_of(claimed.attempt, now, reason)
            await self._settles.add(End(claimed.topic, claimed.id, claimed.token, "dead", 0, reason, trace=trace))
        except EngineError as error:
            _log.warning("Message %s could not be buried now and comes back when its lease ends: %s", claimed.id, error)

    async def _still_held(self, claim: Claim, lease_ms: int) -> Claim:
        """Without what was taken back by others, since the answer has waited for so long."""
        holds = [Hold(each.topic, each.id, each.token) for each in claim.messages]
        answers = await self._engine.extend(holds, lease_ms, brief=True)
        if lost := answers.count(False):
            _log.warning("A claim was answered after its leases had ended: %s left to others", plural(lost, "message"))
        return replace(claim, messages=[each for each, held in zip(claim.messages, answers, strict=True) if held])


def _arguments(lot: Lot, readers: Mapping[str, Reader], limit: int) -> list[dict[str, Any] | None] | None:
    """Those of all of its messages; None where one of them can't be read like this."""
    topics = set(lot.topics)
    if not readers.keys() >= topics:
        return None
    bodies = lot.bodies()
    if max(map(len, bodies)) > limit:
        return None
    if len(topics) == 1:
        found = list(map(readers[topics.pop()], bodies))
    else:
        found = [reader(body) for reader, body in zip(map(readers.__getitem__, lot.topics), bodies, strict=True)]
    return None if None in found else found
