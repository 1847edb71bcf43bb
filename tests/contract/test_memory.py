"""The contract suite on the engine in memory."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from bide.engines.base import Settings
from bide.engines.memory import CAPABILITIES, source
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
