"""`select bide.send(…)`: what programs in any language call, in their own transaction."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from bide import Queue


@pytest.fixture
def queue(postgres_url: str) -> Iterator[Queue]:
    with Queue(postgres_url) as queue:
        queue.stats()
        yield queue


@pytest.fixture
def own(queue: Queue, postgres_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_url) as connection:
        yield connection


def test_a_message_is_received_as_it_was_sent(queue: Queue, own: psycopg.Connection) -> None:
    [id] = own.execute('select bide.send(\'order.cancel\', \'{"order": 42, "name": "ü"}\')').fetchone() or [""]
    own.commit()
    [delivery] = queue.receive("order.cancel")
    assert (delivery.id, delivery.body, delivery.attempt) == (id, {"order": 42, "name": "ü"}, 1)
    delivery.ack()


def test_a_commit_delivers_and_a_rollback_never_does(queue: Queue, own: psycopg.Connection) -> None:
    own.execute("select bide.send('t', '1', key => 'k')")
    assert queue.receive("t") == []
    own.rollback()
    own.execute("select bide.send('t', '2', key => 'k')")
    own.commit()
    assert [each.body for each in queue.receive("t", limit=9)] == [2]


def test_a_commit_wakes_who_waits(queue: Queue, own: psycopg.Connection) -> None:
    own.execute("select bide.send('t', '1')")
    assert queue.receive("t", wait=0.1) == []
    own.commit()
    assert [each.body for each in queue.receive("t", wait=60)] == [1]


def test_all_options_mean_what_they_mean_in_python(queue: Queue, own: psycopg.Connection) -> None:
    at = datetime(2100, 1, 1, tzinfo=UTC)
    [id] = own.execute(
        "select bide.send('t', '[]', at => %s, key => 'k', priority => 'high', headers => '{\"a\": \"1\"}', max_attempts => 7, "
        "expires_in => '1 hour')",
        [at],
    ).fetchone() or [""]
    [again] = own.execute(
        "select bide.send('t', '[1]', delay => '15 minutes', key => 'k', if_exists => 'keep')"
    ).fetchone() or [""]
    own.commit()
    assert again == id
    info = queue.get(topic="t", key="k")
    assert info is not None
    assert (info.id, info.body, info.due_at, info.priority, info.headers, info.max_attempts) == (
        id,
        [],
        at,
        "high",
        {"a": "1"},
        7,
    )
    assert info.expires == info.due + 3_600_000
    own.execute("select bide.send('t', '[2]', delay => '15 minutes', key => 'k', if_exists => 'replace')")
    own.commit()
    moved = queue.get(id)
    assert moved is not None
    assert moved.body == [2]
    assert timedelta(minutes=14) < moved.due_at - datetime.now(UTC) <= timedelta(minutes=15)
    # And the same operation acts once
    ids = {own.execute("select bide.send('t', operation => 'once')").fetchone() for _ in range(2)}
    own.commit()
    assert len(ids) == 1


@pytest.mark.parametrize(
    "call",
    [
        "'no topic!', '1'",
        "null",
        "'t', null",
        "'t', '1', delay => '1 minute', at => now()",
        "'t', '1', delay => '-1 second'",
        "'t', '1', delay => '101 years'",
        "'t', '1', expires_in => '-1 second'",
        "'t', '1', key => ''",
        "'t', '1', key => repeat('k', 257)",
        "'t', '1', key => E'a\\nb'",
        "'t', '1', operation => ''",
        "'t', '1', if_exists => 'perhaps'",
        "'t', '1', priority => 'urgent'",
        "'t', '1', priority => null",
        "'t', '1', max_attempts => 0",
        "'t', '1', max_attempts => 1001",
        "'t', '1', at => 'infinity'",
        "'t', '1', at => '-infinity'",
        "'t', '1', delay => '170000000 years'",
        "'t', '1', expires_in => '0'",
        "'t', '1', expires_in => '101 years'",
        "'t', '1', key => U&'a\\200b'",
        "'t', '1', key => U&'a\\2028b'",
        "'t', '1', operation => U&'a\\00a0b'",
        "'t', '1', headers => '{\"\": \"a\"}'",
        "'t', '1', headers => jsonb_build_object('a', repeat('ä', 4096))",
        "'t', '1', headers => '[]'",
        "'t', '1', headers => '{\"a\": 1}'",
        "'held', '1', key => 'k', if_exists => 'error'",
    ],
)
def test_what_can_t_be_used_is_refused_and_changes_nothing(call: str, queue: Queue, own: psycopg.Connection) -> None:
    queue.send("held", key="k", delay="1h")
    with pytest.raises(psycopg.Error) as refused:
        own.execute(f"select bide.send({call})")
    assert (refused.value.sqlstate or "").startswith("BD")
    own.rollback()
    assert (queue.stats().pending, queue.stats("t").pending) == (1, 0)


def test_what_the_session_is_set_to_does_not_matter(queue: Queue, own: psycopg.Connection) -> None:
    own.execute("create schema strange; create type strange.text as enum ('a'); create type strange.interval as enum ('a')")
    own.execute("create function strange.lpad(text, int, text) returns text language sql as $$ select 'no id'::text $$")
    own.execute("set search_path to strange, public, pg_catalog; set standard_conforming_strings = off; set array_nulls = off")
    own.execute("set default_transaction_isolation = 'serializable'; set intervalstyle = 'sql_standard'")
    [id] = own.execute("select bide.send('t', '1', '1 hour', key => 'ä', headers => '{\"a\": \"ö\"}')").fetchone() or [""]
    own.commit()
    found = queue.get(id)
    assert found is not None
    assert (found.key, found.headers, found.state) == ("ä", {"a": "ö"}, "scheduled")


def test_a_role_that_only_sends_needs_no_more_rights_than_the_docs_say(
    queue: Queue, own: psycopg.Connection, postgres_url: str
) -> None:
    page = Path("docs/postgres.md").read_text(encoding="utf-8")
    grants = page[page.index("grant usage on schema bide to sender") :]
    own.execute(b"create role sender login; " + grants[: grants.index("```")].encode())
    own.commit()
    with psycopg.connect(postgres_url.replace("postgres@", "sender@"), autocommit=True) as sender:
        for options in ("", ", key => 'k', expires_in => '1 ms'", ", key => 'k'", ", key => 'k', if_exists => 'replace'"):
            sender.execute(f"select bide.send('t', '1'{options}, operation => 'o')".encode())
        for refused in ("select bide.pause('t', true)", "delete from bide.dead", "update bide.topic set paused = true"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                sender.execute(refused.encode())
    assert queue.stats("t").ready == 2
