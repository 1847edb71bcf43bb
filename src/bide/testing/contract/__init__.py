"""The contract suite: what every engine must do, as tests that any engine can run.

Subclass `EngineContract` in a test module, say what the engine can do, and say where it lives:

    class TestMine(EngineContract):
        capabilities = mine.CAPABILITIES

        @pytest.fixture
        def make_source(self, tmp_path):
            return lambda **settings: mine.source(Settings(url=f"mine://{tmp_path}/q", **settings))

`make_source` may be called several times in one test. All its sources are of one place that no earlier test has
used, and sources with the same namespace see the same messages. The settings it may be given are those of `Settings`.

Tests of what the engine can't do are not in the class, neither run nor skipped; in their place are tests that the
engine says so. Every test runs in each of `colours`. Needed are pytest and pytest-asyncio.
"""

import pytest

for _room in (
    "bench",
    "claim",
    "exactness",
    "inspection",
    "keys",
    "lacking",
    "lease",
    "life",
    "moving",
    "order",
    "pausing",
    "put",
    "settle",
    "successor",
    "sweeping",
    "upkeep",
    "waiting",
):
    pytest.register_assert_rewrite(f"{__name__}.{_room}")  # a failed assert then shows both sides, wherever this is installed

from bide.testing.contract.bench import Bench  # noqa: E402
from bide.testing.contract.picking import lacks, needs  # noqa: E402
from bide.testing.contract.recoloured import Recoloured  # noqa: E402
from bide.testing.contract.suite import EngineContract  # noqa: E402

__all__ = ["Bench", "EngineContract", "Recoloured", "lacks", "needs"]
