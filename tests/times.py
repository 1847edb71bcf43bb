"""What tests take of a core, with the servers that they start: told by folder at the end, and noted by `pytest --record`.

The record also has how long the tests of a file last, one after the other.
"""

import functools
import json
import os
from collections import defaultdict
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.servers.processes import core_seconds
from tests.servers.server import pids

DURATIONS = Path(__file__).with_name("durations.json")
SMALL = 0.1  # seconds of a core: kin that take less together are not noted anew; a brief run may have few of them
SLOWEST = 10  # files that are named at the end
# Seconds of a core that the tests of a folder may take in `make test`: ten minutes on two cores, with all around them;
# and 45 seconds for metrics and traces.
BUDGETS: Mapping[str, int] = {
    "redis": 167, "contract": 121, "worker": 118, "postgres": 68, "negative": 60, "queue": 40, "rabbitmq": 36, "cli": 18,
    "sqlite": 20, "adopt": 18, "move": 20, "tasks": 18, "mistakes": 12, "examples": 8, "servers": 9, "model": 5,
    "roads": 4, "timers": 5, "delays": 3, "policies": 3, "metrics": 46, "otel": 18,
}  # fmt: skip


class Record(NamedTuple):
    kin: Mapping[str, float]  # seconds of a core that each of them takes, unless that is little
    files: Mapping[str, float]  # seconds, also of those in which its tests wait


def kin_of(item: pytest.Item) -> str:
    """What a test has in common with others, of which not all need to run."""
    variant = item.get_closest_marker("variant")
    return kin_of_variant(variant.args[0], item.nodeid) if variant else kin_of_test(item.nodeid)


def kin_of_test(test: str) -> str:
    """The folder, the first word of the file, which may be an engine, and the name."""
    path, _, rest = test.partition("::")
    folder, _, file = path.rpartition("/")
    word = file.removeprefix("test_").removesuffix(".py").split("_")[0]
    return f"{folder}/test_{word}…::{_name(rest)}"


def kin_of_variant(engine: str, test: str) -> str:
    return f"variants of {engine}::{_name(test)}"


def _name(test: str) -> str:
    return test.split("[", maxsplit=1)[0].rsplit("::", maxsplit=1)[-1]


def file_of(test: str) -> str:
    return test.partition("::")[0]


@functools.cache
def recorded() -> Record:
    return Record(**json.loads(DURATIONS.read_text(encoding="utf-8"))) if DURATIONS.exists() else Record({}, {})


def noted(known: Record, took: Mapping[str, float], lasted: Mapping[str, float], kin: Mapping[str, str]) -> Record:
    """The record after a run of some tests, or of all. `kin`: of each test."""
    kins: dict[str, list[float]] = defaultdict(list)
    files: dict[str, float] = defaultdict(float)
    for test, seconds in took.items():
        kins[kin[test]].append(seconds)
        files[file_of(test)] += lasted[test]
    left = {each: seconds for each, seconds in known.kin.items() if each not in kins}
    found = {each: round(sum(some) / len(some), 3) for each, some in kins.items() if sum(some) > SMALL or each in known.kin}
    return Record(left | found, {**known.files, **{file: round(seconds, 1) for file, seconds in files.items()}})


def over(spent: Mapping[str, float]) -> list[str]:
    """A sentence of each folder that takes more than its budget, or has none."""
    told: list[str] = []
    for folder, seconds in _most(spent):
        budget = BUDGETS.get(folder)
        if budget is None:
            told.append(f"{folder} has no budget: give it one in tests/times.py.")
        elif seconds > budget:
            told.append(f"{folder} takes {seconds:.0f} seconds of a core, and its budget is {budget}.")
    return told


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", action="store_true", help="note in tests/durations.json what tests take")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Times(config), "times")


class Times:
    def __init__(self, config: pytest.Config) -> None:
        self._record: bool = config.getoption("record")
        self._brief: bool = config.getoption("brief")
        self._worker = hasattr(config, "workerinput")
        self._took: dict[str, float] = defaultdict(float)
        self._lasted: dict[str, float] = defaultdict(float)
        self._kin: dict[str, str] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        item.user_properties.append(("began", _used()))
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
        report = yield
        if call.when == "teardown":
            began = next(value for name, value in item.user_properties if name == "began" and isinstance(value, float))
            report.user_properties += [("core", _used() - began), ("kin", kin_of(item))]
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._lasted[report.nodeid] += report.duration
        if report.when == "teardown":
            told: dict[str, Any] = dict(report.user_properties)
            self._took[report.nodeid] += told.get("core", 0.0)
            self._kin[report.nodeid] = told.get("kin", "")

    def pytest_sessionfinish(self) -> None:
        if self._record and not self._worker:
            found = noted(recorded(), self._took, self._lasted, self._kin)
            DURATIONS.write_text(
                json.dumps(found._asdict(), indent=0, sort_keys=True, ensure_ascii=False) + "\n", encoding="utf-8"
            )

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        folders: dict[str, float] = defaultdict(float)
        files: dict[str, float] = defaultdict(float)
        for test, took in self._took.items():
            file = file_of(test)
            files[file] += took
            folders[file.split("/")[1]] += took
        if len(files) > SLOWEST:
            terminalreporter.section("seconds of a core")
            budgets = BUDGETS if self._brief else {}
            of = {folder: f" of {budget}" for folder, budget in budgets.items()}
            terminalreporter.line(", ".join(f"{folder} {took:.0f}{of.get(folder, '')}" for folder, took in _most(folders)))
            for file, took in _most(files)[:SLOWEST]:
                terminalreporter.line(f"{took:6.1f}  {file}")
            for sentence in over(folders) if self._brief else []:
                terminalreporter.line(sentence, yellow=True)


def _most(seconds: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(seconds.items(), key=lambda each: -each[1])


def _used() -> float:
    return sum(os.times()[:4]) + sum(map(core_seconds, pids()))
