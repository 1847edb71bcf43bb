"""`pytest --brief`: what `make test` runs. `make test-all` runs all.

The tests of one name, one engine and one folder are one test with other parameters, or in the other colour. It runs as many of
them as take a core for ENOUGH together, and one at least: always the same. It leaves out what takes longer than LONG. What a
test takes is in tests/durations.json, for those of which not all run; `pytest --record` notes that. The judges of judges, in
tests/negative, and tests that are marked as `always` run all the same.
"""

import hashlib
import json
import os
from collections import defaultdict
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.servers.processes import core_seconds
from tests.servers.server import pids

DURATIONS = Path(__file__).with_name("durations.json")
ENOUGH = 0.1  # seconds of a core
LONG = 3.0
SLOWEST = 10  # files that are named at the end
WHOLE = "tests/negative/"


def kin_of(test: str) -> str:
    """What a test has in common with others: the folder, the first word of the file, which may be an engine, and the name."""
    path, _, rest = test.partition("::")
    folder, _, file = path.rpartition("/")
    word = file.removeprefix("test_").removesuffix(".py").split("_")[0]
    return f"{folder}/test_{word}…::{rest.split('[')[0].split('::')[-1]}"


def by_kin(tests: Iterable[str]) -> dict[str, list[str]]:
    kins: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        kins[kin_of(test)].append(test)
    return kins


def chosen(tests: Iterable[str], durations: dict[str, float]) -> set[str]:
    """Those that run. Which ones does not change when others are added, but for those that these take the place of."""
    run: set[str] = set()
    for kin, each in by_kin(tests).items():
        took = durations.get(kin, 0.0)
        if took <= LONG:
            most = max(1, int(ENOUGH / took)) if took else len(each)
            run |= set(sorted(each, key=lambda test: hashlib.sha256(test.encode()).digest())[:most])
    return run


def recorded() -> dict[str, float]:
    """What a test takes of a core, by its kin, if it is one of which not all run."""
    found: dict[str, float] = json.loads(DURATIONS.read_text()) if DURATIONS.exists() else {}
    return found


def noted(known: dict[str, float], took: dict[str, float]) -> dict[str, float]:
    """The record after a run of some tests, or of all."""
    kins = by_kin(took)
    left = {kin: seconds for kin, seconds in known.items() if kin not in kins}
    for kin, tests in kins.items():
        seconds = sum(took[test] for test in tests)
        if seconds > ENOUGH and (len(tests) > 1 or seconds > LONG):
            left[kin] = round(seconds / len(tests), 3)
    return left


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("brief")
    group.addoption("--brief", action="store_true", help="one test of each kind, and none that is long")
    group.addoption("--record", action="store_true", help="note in tests/durations.json what takes long")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Times(config), "times")


@pytest.hookimpl(trylast=True)  # after what is slow has been left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("brief"):
        return
    always = [each for each in items if each.get_closest_marker("always")]
    run = chosen([each.nodeid for each in items], recorded()) - {each.nodeid for each in always}
    run |= {each.nodeid for each in items if each.nodeid.startswith(WHOLE)}
    config.hook.pytest_deselected(items=[each for each in items if each.nodeid not in run and each not in always])
    # The long ones first, or one process would be at them when all others have ended.
    items[:] = [*always, *(each for each in items if each.nodeid in run and each not in always)]


class Times:
    """What each test takes of a core, with the servers that run and the processes that it has waited for."""

    def __init__(self, config: pytest.Config) -> None:
        self._record: bool = config.getoption("record")
        self._worker = hasattr(config, "workerinput")
        self._tests: dict[str, float] = defaultdict(float)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        item.user_properties.append(("began", _used()))
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if call.when == "teardown":
            began = next(value for name, value in item.user_properties if name == "began" and isinstance(value, float))
            report.user_properties.append(("core", _used() - began))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self._tests[report.nodeid] += sum(
                each for name, each in report.user_properties if name == "core" and isinstance(each, float)
            )

    def pytest_sessionfinish(self) -> None:
        if self._record and not self._worker:
            found = noted(recorded(), self._tests)
            DURATIONS.write_text(json.dumps(found, indent=0, sort_keys=True, ensure_ascii=False) + "\n")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        folders: dict[str, float] = defaultdict(float)
        files: dict[str, float] = defaultdict(float)
        for test, took in self._tests.items():
            file = test.partition("::")[0]
            files[file] += took
            folders["/".join(file.split("/")[:2])] += took
        if len(files) > SLOWEST:
            terminalreporter.section("seconds of a core")
            terminalreporter.line(", ".join(f"{folder} {took:.0f}" for folder, took in _most(folders)))
            for file, took in _most(files)[:SLOWEST]:
                terminalreporter.line(f"{took:6.1f}  {file}")


def _most(seconds: dict[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda each: -each[1])


def _used() -> float:
    return sum(os.times()[:4]) + sum(map(core_seconds, pids()))
