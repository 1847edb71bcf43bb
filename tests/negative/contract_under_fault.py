"""The contract suite on engines with a bug each: to be run by test_controls.py, and to fail."""

from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from bide.engines.base import Settings
from bide.engines.memory import CAPABILITIES, source
from bide.engines.registry import Source
from bide.testing.contract import EngineContract
from tests.negative.faulty import FAULTS, Fault, FaultySource


def contract_of(make_fault: Callable[[], Fault]) -> type[EngineContract]:
    class Faulty(EngineContract):
        capabilities = CAPABILITIES

        @pytest.fixture
        def make_source(self) -> Callable[..., Source]:
            url, fault = f"memory://{uuid4().hex}", make_fault()
            return lambda **settings: FaultySource(source(Settings(url=url, **settings)), fault)

    return Faulty


def no_fault(**asked: Any) -> Fault:
    return Fault()


for name, each in {"NoFault": Fault, **FAULTS}.items():
    globals()[f"Test{name}"] = contract_of(each)
