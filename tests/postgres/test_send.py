"""`select bide.send(…)`: what programs in any language call, in their own transaction."""

import unicodedata
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import psycopg
import pytest

from bide import CancelResult, ConfigError, Queue, RescheduleResult, SchemaMismatch


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
        "'t', '1', if_exists => 'merge'",
        "'t', '123', if_exists => 'merge', key => 'k', max_body => 4",
        "'held', '1', if_exists => 'merge', key => 'k'",
        "'t', '1', unique_for => '1 minute'",
        "'t', '1', unique_for => '1 minute', key => 'k', if_exists => 'later'",
        "'t', '1', unique_for => '0', key => 'k'",
        "'t', '1', unique_for => '101 years', key => 'k'",
        "'t', '1', max_wait => '1 minute'",
        "'t', '1', max_wait => '1 minute', key => 'k'",
        "'t', '1', max_wait => '1 minute', if_exists => 'later'",
        "'t', '1', max_wait => '0', key => 'k', if_exists => 'later'",
        "'t', '1', max_wait => '1 minute', delay => '2 minutes', key => 'k', if_exists => 'later'",
        "'t', '1', max_wait => '101 years', key => 'k', if_exists => 'later'",
        "'t', '1', priority => 'urgent'",
        "'t', '1', priority => null",
        "'t', '1', max_attempts => 0",
        "'t', '1', max_attempts => 1001",
        "'t', '1', at => 'infinity'",
        "'t', '1', at => '-infinity'",
        "'t', '1', delay => '170000000 years'",
        "'t', '1', at => '294276-12-31'",
        "'t', '1', key => U&'a\\feffb'",
        "'t', '1', operation => repeat('ü', 129)",
        "'t', '1', max_body => null",
        "'t', '1', max_body => 0",
        "'t', to_jsonb(repeat('x', 262143))",
        "'t', '[1e308]'",
        "'t', '-1e131000'",
        "'t', ('[' || repeat('9', 5000) || ']')::jsonb",
        "'t', (repeat('[', 600) || repeat(']', 600))::jsonb",
        "'t', (repeat('{\"a\": [', 300) || repeat(']}', 300))::jsonb",
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


BODIES = [
    "1e-3", "9" * 308, f'"{"9" * 5_000}"', '"[[[{{{"', "[" * 499 + "]" * 499, "[" + "[]," * 3_000 + "{}]", "0.1",
    "1.0", "-0.5e-3",
    '{"a": {"ü": "\\ud83d\\ude00"}}', '"a/b\\\\\\n\\u007f"',
]  # fmt: skip


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body[:20])
def test_a_worker_gets_exactly_what_was_sent(queue: Queue, own: psycopg.Connection, body: str) -> None:
    own.execute("select bide.send('t', %s::jsonb)", [body])
    own.commit()
    [delivery] = queue.receive("t")
    assert delivery.body == msgspec.json.decode(body)


def test_the_largest_body_is_what_the_queue_in_python_reads(postgres_url: str, queue: Queue, own: psycopg.Connection) -> None:
    own.execute("select bide.send('t', to_jsonb(repeat('x', 262142)))")
    own.execute("select bide.send('larger', to_jsonb(repeat('x', 262143)), max_body => 262145)")
    own.execute("select bide.send_bytes('bytes', %s, max_body => 300)", [bytes(range(256))])
    own.commit()
    assert len(queue.receive("t")[0].body) == 262_142
    with Queue(postgres_url, max_body=262_145) as larger:
        assert len(larger.receive("larger")[0].body) == 262_143


def test_a_key_has_those_characters_that_it_has_in_python(queue: Queue, own: psycopg.Connection) -> None:
    """But for those that are none yet, of which newer releases of Python know more."""
    codes = [code for code in range(1, 0x110000) if unicodedata.category(chr(code)) not in ("Cn", "Cs")]
    found = own.execute(
        "select g.code from unnest(%s::int[]) as g(code) where bide.is_seen('a' || chr(g.code) || 'b')", [codes]
    ).fetchall()
    assert [code for (code,) in found] == [code for code in codes if chr(code).isprintable()]


@pytest.mark.parametrize("name", ["now", "within"])
def test_no_argument_moves_the_time_of_the_queue(queue: Queue, own: psycopg.Connection, name: str) -> None:
    for function in ("bide.send('t', '1'", "bide.send_bytes('t', '1'"):
        with pytest.raises(psycopg.errors.UndefinedFunction):
            own.execute(f"select {function}, {name} => '9000000000000')".encode())
        own.rollback()


def test_the_same_operation_in_two_transactions_at_once_is_sent_once(
    queue: Queue, own: psycopg.Connection, postgres_url: str
) -> None:
    """The second one waits, and is told to run again."""
    sends = b"select bide.send('t', '1', operation => 'once')"
    first = own.execute(sends).fetchone()
    with psycopg.connect(postgres_url) as second, ThreadPoolExecutor(1) as threads:
        sending = threads.submit(second.execute, sends)
        with psycopg.connect(postgres_url, autocommit=True) as third:
            while third.execute("select from pg_stat_activity where wait_event_type = 'Lock'").fetchone() is None:
                pass
        own.commit()
        with pytest.raises(psycopg.errors.SerializationFailure):
            sending.result()
        second.rollback()
        assert second.execute(sends).fetchone() == first
        second.commit()
    assert queue.stats("t").pending == 1


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


@pytest.mark.parametrize("migrate", ["", "?migrate=0"])
def test_a_queue_whose_role_only_sends_needs_no_more_rights_than_the_docs_say(
    migrate: str, queue: Queue, own: psycopg.Connection, postgres_url: str
) -> None:
    page = Path("docs/postgres.md").read_text(encoding="utf-8")
    section = page[page.index("### A role that only sends") : page.index("## What it promises")]
    first, more = (block.partition("```")[0] for block in section.split("```sql\n")[1:])
    own.execute(b"create role sender login; " + first.encode())
    own.commit()
    url = postgres_url.replace("postgres@", "sender@")
    with Queue(url + migrate) as sender, psycopg.connect(url) as connection:

        @sender.task("kept", keep="1h")
        def kept() -> None: ...

        sender.send("t", 1)
        sender.send("u", 2, key="r")
        sender.send("t", 2, key="k", delay="1h", operation="o")
        sender.send("t", 3, key="k", if_exists="replace")
        sender.send("t", [4], key="m", if_exists="merge", unique_for=None)
        sender.send("t", 5, key="u", unique_for="1h")
        sender.send_many("t", [6, 7])
        sender.send("t", 8, connection=connection)
        connection.commit()
        with Queue(postgres_url) as receiver:
            [running] = receiver.receive("u")
            assert sender.cancel(topic="u", key="r") is CancelResult.RUNNING
            assert sender.reschedule(topic="u", key="r", delay=5) is RescheduleResult.RUNNING
            running.ack()
        assert sender.cancel(topic="t", key="k") is CancelResult.CANCELLED
        assert sender.cancel(topic="t", key="k") is CancelResult.GONE
        ids = [sender.send("t", 9, delay="1h").id for _ in range(2)]
        assert sender.reschedule(ids[0], delay="2h") is RescheduleResult.MOVED
        assert list(sender.cancel_many([*ids, ids[0]])) == [CancelResult.CANCELLED] * 2 + [CancelResult.GONE]
        assert list(sender.cancel_many(ids)) == [CancelResult.GONE] * 2
        refused: list[Callable[[], object]] = [
            lambda: sender.receive("t"),
            sender.stats,
            lambda: sender.messages("t"),
            lambda: sender.purge("t", state="dead"),
            lambda: sender.pause("t"),
            kept.send,
        ]
        for call in refused:
            with pytest.raises(ConfigError, match=r"lacks a right: permission denied for .*the page PostgreSQL .* lists"):
                call()
        own.execute(more.encode())
        own.commit()
        kept.send()
    assert queue.stats("t").ready == 6
    assert queue.stats("kept").ready == 2  # the first was sent before its result could be waited for


def test_a_queue_whose_role_only_sends_is_told_that_there_are_no_tables(postgres_url: str) -> None:
    with psycopg.connect(postgres_url) as owner:
        owner.execute("create role sender login; create schema bide; grant usage on schema bide to sender")
    with pytest.raises((SchemaMismatch, ConfigError), match="bide migrate"), Queue(sender_of(postgres_url)) as sender:
        sender.send("t", 1)


def sender_of(url: str) -> str:
    return url.replace("postgres@", "sender@")
