"""The contract suite on engines that can do no more than they must: their guard refuses the rest, and nothing relies on it."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from bide.engines.guard import Rules
from bide.engines.memory import CAPABILITIES
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


@pytest.mark.parametrize("lacks", ["keys", "idempotent", "priority", "past"])
def test_what_is_sent_is_checked_if_an_engine_lacks_one_thing(lacks: str) -> None:
    assert Rules(CAPABILITIES, "test").takes_all
    assert not Rules(replace(CAPABILITIES, **{lacks: False}), "test").takes_all
