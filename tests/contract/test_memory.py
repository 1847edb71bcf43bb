"""The contract suite on the engine in memory."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from bide.engines.base import End, NewMessage, Ref, Settings
from bide.engines.memory import CAPABILITIES, source
from bide.engines.memory.store import SPARE
from bide.engines.registry import Source
from bide.testing.contract import EngineContract


class TestMemory(EngineContract):
    capabilities = CAPABILITIES

    @pytest.fixture
    def make_source(self) -> Callable[..., Source]:
        url = f"memory://{uuid4().hex}"

        def make(**settings: Any) -> Source:
            return source(Settings(url=url, **settings))

        return make


def test_messages_that_have_ended_do_not_pile_up_until_they_would_have_expired() -> None:
    place = source(Settings(url="memory://"))
    engine = place.sync()
    engine.open()
    for _ in range(20):
        sent = engine.put([NewMessage("t", b"", expires_in=10**9)] * 500)
        assert {each.name for each in engine.cancel([Ref(each.id) for each in sent])} == {"CANCELLED"}
    assert len(place._store.expiries) <= SPARE + 1_000


def test_dead_letters_that_were_purged_do_not_pile_up_until_they_would_have_been_dropped() -> None:
    place = source(Settings(url="memory://"))
    engine = place.sync()
    engine.open()
    for _ in range(20):
        engine.put([NewMessage("t", b"")] * 500)
        held = engine.claim(["t"], 500, 10_000).messages
        engine.settle([End("t", each.id, each.token, "dead") for each in held])
        assert engine.purge("t", "dead").count == 500
    assert len(place._store.deaths) <= SPARE + 1_000
