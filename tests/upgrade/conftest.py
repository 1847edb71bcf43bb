"""The two releases that meet here."""

from pathlib import Path

import pytest

from tests.servers.fixtures import NewRedis
from tests.upgrade.release import FIRST, NEAREST, PLACES, Release, former, present


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of them take the release before, whose build is too long for every run: `make test-upgrade` runs them."""
    for item in items:
        if "upgrade" in item.path.parts:
            item.add_marker("slow")


@pytest.fixture
def before(request: pytest.FixtureRequest) -> Release:
    place = request.getfixturevalue("place") if "place" in request.fixturenames else ""
    return former(NEAREST if place.startswith("nearest: ") else FIRST)


@pytest.fixture
def now() -> Release:
    return present()


@pytest.fixture(params=["before first", "now first"])
def pair(request: pytest.FixtureRequest, before: Release, now: Release) -> tuple[Release, Release]:
    """One release, and the other; and the other way round."""
    return (before, now) if request.param == "before first" else (now, before)


@pytest.fixture(params=[*PLACES, *(f"nearest: {each}" for each in (*PLACES, "postgres"))])
def place(request: pytest.FixtureRequest) -> str:
    """Where the two meet, and which release is the one before."""
    return str(request.param)


@pytest.fixture
def url(request: pytest.FixtureRequest, tmp_path: Path, place: str) -> str:
    """An empty place that both know. On PostgreSQL the release before makes the tables: it can't use those of a later one."""
    if "sqlite" in place:
        return f"sqlite:///{tmp_path / 'bide.db'}"
    if "postgres" in place:
        url: str = request.getfixturevalue("postgres_url")
        former(NEAREST).do("look", url=url)
        return url
    new_redis: NewRedis = request.getfixturevalue("new_redis")
    return new_redis().url + ("?shards=3" if "shards" in place else "")
