"""What roles may do that have no rights in bide's schema, or few."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import psycopg
import pytest

from bide import Queue, Unavailable
from bide.engines.base import Settings
from bide.engines.postgres import source
from bide.engines.postgres.layout import OURS
from tests.postgres.owned import of_role

GUESSES = range(8_243_120, 8_243_135)


@contextmanager
def every_guess(url: str) -> Iterator[None]:
    """A role without rights holds the advisory locks that bide has had, and their neighbours, in both forms."""
    with psycopg.connect(of_role(url, "nobody2"), autocommit=True) as nobody:
        for key in GUESSES:
            nobody.execute("select pg_advisory_lock(%s, hashtext('bide')), pg_advisory_lock(%s)", [key, key])
        yield


@pytest.fixture
def nobody(other: psycopg.Connection) -> None:
    other.execute("create role nobody2 login")


def test_advisory_locks_of_others_stop_no_table_from_being_made(postgres_url: str, nobody: None) -> None:
    with every_guess(postgres_url), Queue(f"{postgres_url}?timeout=2") as queue:
        assert queue.send("t").created


def test_advisory_locks_of_others_stop_nothing(postgres_url: str, nobody: None) -> None:
    with Queue(f"{postgres_url}?timeout=2") as queue:
        queue.send_many("t", range(3))
        with every_guess(postgres_url):
            began = time.monotonic()
            queue.pause("t")
            queue.resume("t")
            [first] = queue.receive("t")
            first.ack()
            assert source(Settings(url=postgres_url)).migrating().begin() is False
            assert time.monotonic() - began < 2


def test_no_sql_of_bide_takes_an_advisory_lock() -> None:
    assert "advisory" not in OURS.functions.replace("an advisory lock by any role", "")
    assert not any("advisory" in text for text in OURS.migrations.values())


@pytest.mark.parametrize("statement", ["lock table bide.topic in {} mode", "select from bide.topic for {}"])
@pytest.mark.parametrize("strength", ["share", "row exclusive", "exclusive", "access exclusive", "key share", "update"])
def test_a_role_that_may_only_read_can_lock_nothing(
    postgres_url: str, other: psycopg.Connection, nobody: None, statement: str, strength: str
) -> None:
    if ("key share" in strength or strength == "update") is statement.startswith("lock"):
        pytest.skip("no such lock")
    with Queue(postgres_url) as queue:
        queue.stats()
    other.execute("grant usage on schema bide to nobody2; grant select on all tables in schema bide to nobody2")
    with psycopg.connect(of_role(postgres_url, "nobody2")) as reader, pytest.raises(psycopg.errors.Error):
        reader.execute(statement.format(strength).encode())


def test_a_claim_that_waits_for_a_lock_says_so(postgres_url: str, other: psycopg.Connection) -> None:
    """And does not ask whether the server is overloaded."""
    with Queue(f"{postgres_url}?timeout=1.5") as queue:
        queue.send("t")
        with psycopg.connect(postgres_url) as holder:
            holder.execute("lock table bide.topic in exclusive mode")
            with pytest.raises(Unavailable, match="another transaction holds"):
                queue.receive("t")
        assert queue.receive("t")


def test_a_pause_that_waits_for_a_claim_goes_on_when_it_has_ended(postgres_url: str, other: psycopg.Connection) -> None:
    waiting = "select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url) as claiming, ThreadPoolExecutor(1) as threads:
        queue.send("t")
        claiming.execute("select bide.hand_out('{t}', array[-1::bigint], 10, 60000, 'r', '{}', null)")
        pausing = threads.submit(queue.pause, "t")
        while other.execute(waiting).fetchone() is None:
            assert not pausing.done()
        claiming.commit()
        pausing.result(10)
