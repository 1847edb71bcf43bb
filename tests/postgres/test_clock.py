"""Engine time when the clock of the server is set back, which here the sequences say that it was."""

import psycopg
import pytest

from bide import Queue

HOUR = 3_600_000_000  # microseconds
TELL = "select extract(epoch from clock_timestamp()) * 1000000, bide.engine_us(null, true)"


@pytest.fixture
def database(postgres_url: str) -> psycopg.Connection:
    with Queue(postgres_url) as queue:
        queue.send("t")
    return psycopg.connect(postgres_url, autocommit=True)


def tell(database: psycopg.Connection) -> tuple[int, int]:
    """The server's clock, and engine time."""
    found = database.execute(TELL).fetchone()
    assert found is not None
    return int(found[0]), int(found[1])


def test_time_goes_on_at_half_speed_when_the_clock_was_set_back(database: psycopg.Connection) -> None:
    """Also when it was set back to before the moment in which time was last stored: it must not stand still until then."""
    with database:
        clock, _ = tell(database)
        for name in ("mark", "raw"):
            database.execute("select setval(%s::text::regclass, %s)", [f"bide.{name}", clock + HOUR])
        before, first = tell(database)
        while True:  # it moves
            after, last = tell(database)
            if last > first:
                break
        assert first == clock + HOUR
        assert last - first <= (after + 1_000_000 - before) // 2


def test_time_that_was_stored_never_goes_back(database: psycopg.Connection) -> None:
    with database:
        far = tell(database)[1] // 1000 + 86_400_000
        database.execute("select bide.engine_us(%s, true)", [far])
        times = [tell(database)[1] for _ in range(100)]
        assert times[0] >= far * 1000
        assert times == sorted(times)
