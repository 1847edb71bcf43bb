"""The contract suite on engines that can do no more than they must: their guard refuses the rest, and nothing relies on it."""

from collections.abc import Callable

import pytest

from bide.engines.registry import Source
from bide.testing.contract import EngineContract
from tests.modest import BURYING, LEAST, modest


class TestModest(EngineContract):
    capabilities = LEAST

    @pytest.fixture
    def make_source(self) -> Callable[..., Source]:
        return modest(LEAST)


class TestBurying(EngineContract):
    """It tells nothing of what is pending, but of its dead letters."""

    capabilities = BURYING

    @pytest.fixture
    def make_source(self) -> Callable[..., Source]:
        return modest(BURYING)
