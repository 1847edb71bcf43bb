"""The contract suite on an engine that can do no more than it must: its guard refuses the rest, and nothing relies on it."""

from collections.abc import Callable, Sequence
from uuid import uuid4

import pytest
from msgspec.structs import replace

from bide.engines.aio import AsyncEngine
from bide.engines.base import Finding, Settings
from bide.engines.memory import CAPABILITIES, source
from bide.engines.registry import Source
from bide.engines.sync import Engine
from bide.testing.contract import EngineContract

LEAST = replace(
    CAPABILITIES,
    cancel=False,
    lookup=False,
    keys=False,
    idempotent=False,
    extend=False,
    inspect=False,
    pause=False,
    priority=False,
)


class Modest:
    """The memory engine, which says that it can't do much."""

    capabilities = LEAST

    def __init__(self, plain: Source) -> None:
        self.shown: str = "modest://"
        self.namespace: str = plain.namespace
        self._plain = plain

    def aio(self) -> AsyncEngine:
        engine = self._plain.aio()
        engine.capabilities = LEAST
        return engine

    def sync(self) -> Engine:
        engine = self._plain.sync()
        engine.capabilities = LEAST
        return engine

    def examine(self) -> Sequence[Finding]:
        return self._plain.examine()

    def mend(self) -> Sequence[Finding] | None:
        return self._plain.mend()


class TestModest(EngineContract):
    capabilities = LEAST

    @pytest.fixture
    def make_source(self) -> Callable[..., Source]:
        url = f"memory://{uuid4().hex}"
        return lambda **settings: Modest(source(Settings(url=url, **settings)))
