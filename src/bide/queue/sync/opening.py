# Generated from ../aio/opening.py by tools/unasync.py; change that file instead.
"""From what a claim has brought to deliveries: bodies are read."""

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec.structs import replace

from bide.core.amounts import plural
from bide.core.codec import JSON, decode
from bide.engines.base import Claim, Claimed, End, Ended, Hold
from bide.engines.sync import Engine
from bide.errors import BadMessage, EngineError
from bide.logs import Log
from bide.queue.attempts import record_of
from bide.queue.batching import Batching
from bide.queue.beats import Asked
from bide.queue.deliveries import UNREAD
from bide.queue.envelope import Envelope
from bide.queue.subscriptions import UNHEARD, Subscriptions
from bide.queue.sync.delivery import Delivery

_log = Log("bide.intake")

Reader: TypeAlias = Callable[[bytes], dict[str, Any] | None]
"""Reads the arguments of a handler from JSON, or gives None where it can't."""
NO_READERS: Mapping[str, Reader] = {}


class Opener:
    def __init__(
        self,
        engine: Engine,
        envelope: Envelope,
        settles: Batching[End, Ended],
        subscriptions: Subscriptions = UNHEARD,
    ) -> None:
        self._engine = engine
        self._envelope = envelope
        self._settles = settles
        self._subscriptions = subscriptions

    def open(self, claim: Claim, asked: Asked | None = None, readers: Mapping[str, Reader] = NO_READERS) -> list[Delivery]:
        """Deliveries; a message whose body can't be read goes to the dead letters, where people can look at it.

        asked: the claim is looked after under its name. If its answer was late, what others have taken back is left out.
        readers: by topic. Where one can read the arguments of a handler, the body is not read until somebody asks for it.
        """
        if asked is not None and asked.late and claim.messages:
            claim = self._still_held(claim, asked.lease_ms)
        if self._subscriptions.heard:
            self._subscriptions.begun(claim.messages, claim.now)
        codec, limit = self._envelope.codec, self._envelope.max_body
        usable = readers if codec is JSON else NO_READERS
        now, engine, settles = claim.now, self._engine, self._settles
        found = []
        for claimed in claim.messages:
            reader = usable.get(claimed.topic)
            arguments = reader(claimed.body) if reader is not None and len(claimed.body) <= limit else None
            if arguments is not None:
                found.append(Delivery(claimed, UNREAD, now, engine, settles, arguments))
                continue
            try:
                body = decode(codec, claimed.body, limit)
            except BadMessage as error:
                _log.error("Message %s of %s can't be read and is buried: %s", claimed.id, claimed.topic, error)
                self._bury(claimed, str(error), now)
            else:
                found.append(Delivery(claimed, body, now, engine, settles))
        if self._subscriptions.heard:
            at_work = time.monotonic()
            for delivery in found:
                delivery.at_work = at_work
        return found

    def _bury(self, claimed: Claimed, reason: str, now: int) -> None:
        """What can't be buried now must not keep those that came with it from being handled."""
        try:
            trace = record_of(claimed.attempt, now, reason)
            self._settles.add(End(claimed.topic, claimed.id, claimed.token, "dead", 0, reason, trace=trace))
        except EngineError as error:
            _log.warning("Message %s could not be buried now and comes back when its lease ends: %s", claimed.id, error)

    def _still_held(self, claim: Claim, lease_ms: int) -> Claim:
        """Without what was taken back by others, since the answer has waited for so long."""
        holds = [Hold(each.topic, each.id, each.token) for each in claim.messages]
        answers = self._engine.extend(holds, lease_ms, brief=True)
        if lost := answers.count(False):
            _log.warning("A claim was answered after its leases had ended: %s left to others", plural(lost, "message"))
        return replace(claim, messages=[each for each, held in zip(claim.messages, answers, strict=True) if held])
