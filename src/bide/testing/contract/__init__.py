"""The contract suite: what every engine must do, as tests that any engine can run.

Subclass `EngineContract` in a test module, say what the engine can do, and say where it lives:

    class TestMine(EngineContract):
        capabilities = mine.CAPABILITIES

        @pytest.fixture
        def make_source(self, tmp_path):
            return lambda **settings: mine.source(Settings(url=f"mine://{tmp_path}/q", **settings))

`make_source` may be called several times in one test, with the settings of `Settings`. All its sources lead to the same
store, which no earlier test has used, and sources with the same namespace see the same messages.

Tests of what the engine can't do are not in the class, neither run nor skipped; instead, the class has tests that the
engine says so. Without `inspect` it need not know what waits: it is not asked for the next due time, nor to hand out by due
time what was due before the claim, nor to find what has expired and was not claimed. Every test runs sync and async, as
`colours` says. It needs pytest and pytest-asyncio.

Time moves only when a test says so, by `now`, and then what is due is expected at once. If your messages take a moment to
arrive, override the fixture `wrap`: what it returns takes an engine and its namespace, and answers with a wrapper that passes
every verb on, and whose `claim` waits until what is due has arrived.
"""

import pkgutil

import pytest

# A failed assert then shows both sides, wherever the package is installed.
for _module in pkgutil.iter_modules(__path__):
    pytest.register_assert_rewrite(f"{__name__}.{_module.name}")

from bide.testing.contract.bench import Bench, lacks, needs  # noqa: E402
from bide.testing.contract.suite import EngineContract, Recoloured  # noqa: E402

__all__ = ["Bench", "EngineContract", "Recoloured", "lacks", "needs"]
