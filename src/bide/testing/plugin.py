"""The pytest plugin: queues in memory, and a guard against tests that use a real one.

Their clock begins at the real time and stands still until the test moves it.

def test_an_unpaid_order_is_cancelled(bide_queue):
    bide_queue.send("order.cancel", {"order": 42}, delay="15m")
    bide_queue.testing.advance("15m")
    [delivery] = bide_queue.receive("order.cancel")
    assert delivery.body == {"order": 42}
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from bide.engines.base import Settings
from bide.engines.registry import Guarded, Source
from bide.errors import ConfigError

if TYPE_CHECKING:
    from bide import AsyncQueue, Queue

MOVE = "Move the queue into memory for the test, `with queue.testing.in_memory():`"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini(
        "bide_guard",
        "Tests that use a queue outside of memory: true refuses them, warn names them at the end, false says nothing.",
        default="warn",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "bide_real: this test uses a queue outside of memory, and bide_guard lets it.")
    how = str(config.getini("bide_guard")).lower()
    if how not in ("true", "warn", "false"):
        raise pytest.UsageError(f"bide_guard is {how}. Give true, warn or false.")
    if how != "false":
        config.pluginmanager.register(_RealQueues(refuse=how == "true"), "bide-guard")


class _RealQueues:
    """Those that tests use outside of memory, perhaps because they forgot `in_memory()`."""

    def __init__(self, *, refuse: bool) -> None:
        self._refuse = refuse
        self._test: pytest.Item | None = None
        self._used: dict[str, str] = {}  # by the queue as it is shown: the first test
        Guarded.in_tests = self._meet

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        self._test = item

    @pytest.hookimpl(trylast=True)
    def pytest_runtest_teardown(self) -> None:
        self._test = None

    def pytest_unconfigure(self) -> None:
        Guarded.in_tests = None

    def _meet(self, settings: Settings, place: Source) -> None:
        if self._test is None or settings.for_test or not place.capabilities.persistent:
            return
        if self._test.get_closest_marker("bide_real") is not None:
            return
        if self._refuse:
            raise ConfigError(f"This test uses {place.shown} for real. {MOVE}, or mark the test with @pytest.mark.bide_real.")
        self._used.setdefault(place.shown, self._test.nodeid)

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """A process of pytest-xdist hands on what its tests have used."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output["bide_used"] = self._used

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        for shown, test in getattr(node, "workeroutput", {}).get("bide_used", {}).items():
            self._used.setdefault(shown, test)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for shown, test in self._used.items():
            terminalreporter.write_line(
                f"bide: {test} has used {shown} for real. {MOVE}; bide_guard = true in pytest's configuration refuses such "
                "tests, and false hides this line."
            )


@pytest.fixture
def bide_queue() -> "Iterator[Queue]":
    """A new Queue for each test. For async code, `bide_queue.aio` is the same queue."""
    from bide import Queue  # noqa: PLC0415  (pytest loads this file in every run, with or without bide in it)
    from bide.queue.travel.relocate import FollowingClock  # noqa: PLC0415

    queue = Queue("memory://", clock=FollowingClock())
    yield queue
    queue.close()


@pytest.fixture
def bide_async_queue() -> "Iterator[AsyncQueue]":
    """A new AsyncQueue for each test, whatever plugin runs its event loop. `bide_async_queue.sync` is the same queue."""
    from bide import AsyncQueue  # noqa: PLC0415
    from bide.queue.travel.relocate import FollowingClock  # noqa: PLC0415

    queue = AsyncQueue("memory://", clock=FollowingClock())
    yield queue
    queue.sync.close()
