"""The two releases that meet here."""

from pathlib import Path

import pytest

from tests.servers.fixtures import NewRedis
from tests.upgrade.release import Release, former, present


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them take the release before, whose build is too long for every run: `make test-upgrade` runs them."""
    for item in items:
        if "upgrade" in item.path.parts:
            item.add_marker("slow")


@pytest.fixture(scope="session")
def before() -> Release:
    return former()


@pytest.fixture(scope="session")
def now() -> Release:
    return present()


@pytest.fixture(params=["before first", "now first"])
def pair(request: pytest.FixtureRequest, before: Release, now: Release) -> tuple[Release, Release]:
    """One release, and the other; and the other way round."""
    return (before, now) if request.param == "before first" else (now, before)


@pytest.fixture(params=["redis", "redis, several shards", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place that both know."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'bide.db'}"
    new_redis: NewRedis = request.getfixturevalue("new_redis")
    return new_redis().url + ("?shards=3" if "shards" in request.param else "")
