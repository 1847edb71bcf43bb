"""The contract suite on an engine that anybody could write in a day: a plain dict, and nothing that the guard does for it."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from bide.engines.base import Finding, Settings
from bide.engines.registry import Source
from bide.engines.sync import Engine
from bide.testing.contract import EngineContract
from tests.contract import skeleton


class SkeletonSource:
    capabilities = skeleton.CAPABILITIES
    shown = "skeleton://"

    def __init__(self, shelves: dict[str, skeleton.Shelf], settings: Settings) -> None:
        self.namespace: str = settings.namespace
        self._shelf = shelves.setdefault(settings.namespace, skeleton.Shelf(settings.dead_for, settings.dead_max))

    def aio(self) -> skeleton.Skeleton:
        return skeleton.Skeleton(self._shelf)

    def sync(self) -> Engine:
        raise NotImplementedError

    def examine(self) -> Sequence[Finding]:
        return []

    def mend(self) -> None:
        """There is nothing to mend."""


class TestSkeleton(EngineContract):
    capabilities = skeleton.CAPABILITIES

    @pytest.fixture
    def make_source(self) -> Callable[..., Source]:
        shelves: dict[str, skeleton.Shelf] = {}

        def make(**settings: Any) -> Source:
            return SkeletonSource(shelves, Settings(url="skeleton://", **settings))

        return make


def test_an_engine_is_small() -> None:
    """What every engine would need again belongs into the guard."""
    text = Path(skeleton.__file__).read_text(encoding="utf-8")
    assert len([line for line in text.splitlines() if line.strip()]) <= 250
