"""One database, both colours, other processes, and the connections that an application may have at hand."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import psycopg
import pytest

from bide import AsyncQueue, Queue
from tests.postgres.owned import Own, opened
from tests.sqlite.conftest import Awaited, children

start = pytest.fixture(children, name="start")


@pytest.fixture(params=["async", "sync"])
def colour(request: pytest.FixtureRequest) -> str:
    which: str = request.param
    return which


@pytest.fixture
async def make_queue(colour: str, postgres_url: str) -> AsyncIterator[Callable[..., Any]]:
    """Makes queues of one colour on the test's database, and closes them."""
    made: list[Any] = []

    def make(where: str = postgres_url, **options: Any) -> Any:
        made.append(AsyncQueue(where, **options) if colour == "async" else Awaited(Queue(where, **options)))
        return made[-1]

    yield make
    for queue in made:
        await queue.close()


@pytest.fixture
async def queue(make_queue: Callable[..., Any]) -> Any:
    made = make_queue()
    await made.stats()  # its tables are there
    return made


@pytest.fixture
def other(postgres_url: str) -> Iterator[psycopg.Connection]:
    """Somebody else in the same database, who also makes the application's table."""
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("create table booked (seat integer)")
        yield connection


@pytest.fixture
async def own(kind: str, postgres_url: str, other: psycopg.Connection, queue: Any) -> AsyncIterator[Own]:
    """The application's own connection, of a kind that fits the queue's colour."""
    async with opened(kind, postgres_url) as own:
        yield own
