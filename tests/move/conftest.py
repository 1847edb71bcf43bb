"""Two queues, and the command."""

from collections.abc import Iterator
from typing import Any

import pytest

from bide import Queue
from tests.cli.conftest import bide, bide_process, folder

__all__ = ["bide", "bide_process", "folder"]


@pytest.fixture(params=["sqlite", "redis", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Queue]:
    url = f"sqlite:///{tmp_path}/old.db"
    if request.param != "sqlite":
        url = request.getfixturevalue(f"{request.param}_url")
    with Queue(url) as queue:
        yield queue


@pytest.fixture
def new(tmp_path: Any) -> Iterator[Queue]:
    with Queue(f"sqlite:///{tmp_path}/new.db") as queue:
        yield queue
