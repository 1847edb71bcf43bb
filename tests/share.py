"""Which process runs which tests, with `--dist loadfile`: files as a whole, those first that took the longest by the record.

So what a file starts for its tests is started once. All that needs RabbitMQ is one share, since a broker takes long to start. A
file whose long matrices would take one process for half an hour is shared test by test.
"""

import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

from tests.times import file_of, recorded

RABBITMQ = "tests/…rabbitmq…"
MATRICES = ("tests/redis/test_whole_or_nothing.py", "tests/redis/test_long_histories.py")
LONG: Collection[str] = MATRICES if os.environ.get("BIDE_LONG") else ()


def share_of(test: str) -> str:
    """The name of what one process runs."""
    file = file_of(test)
    if file in LONG:
        return test
    return RABBITMQ if "rabbitmq" in file else file


def longest_first(tests: Sequence[str], seconds: Mapping[str, float]) -> list[int]:
    """The places of the tests, by shares: what a share took is the sum of its files, and what is not known comes last."""
    took: dict[str, float] = {}
    for file, share in {(file_of(test), share_of(test)) for test in tests}:
        took[share] = took.get(share, 0.0) + seconds.get(file, 0.0)
    return sorted(range(len(tests)), key=lambda at: (-took[share_of(tests[at])], share_of(tests[at])))


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> LoadFileScheduling | None:
    if config.getoption("dist") != "loadfile":
        return None
    config.option.loadscopereorder = False  # they are in order already
    shares = LoadFileScheduling(config, log)
    shares._split_scope = share_of
    return shares


@pytest.hookimpl(trylast=True)  # after those that do not run have been left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):
        items[:] = [items[at] for at in longest_first([each.nodeid for each in items], recorded().files)]
