"""The tables of a namespace: made once, brought from one layout to the next in two parts, and refused when they are too new."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from bide import Queue, SchemaMismatch
from bide.engines.base import Settings
from bide.engines.postgres import source
from bide.engines.postgres.layout import OURS, FoundMigrations, Layout
from bide.engines.postgres.sync.migrations import Migrator

NOW, LATER = OURS.number, OURS.number + 1
NEXT = Layout(
    {
        **OURS.migrations,
        f"{LATER:04}_more.sql": "alter table bide.message add column more text;",
        f"{LATER:04}_more.post.sql": "alter table bide.answer rename to answer_of_old;",
    },
    OURS.functions,
)


@pytest.fixture
def database(postgres_url: str) -> Iterator[psycopg.Connection]:
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        yield connection


def migrating(url: str, ours: Layout = OURS) -> Migrator:
    work = source(Settings(url=url)).migrating()
    work.ours = ours
    return work


def columns(database: psycopg.Connection) -> set[str]:
    found = database.execute("select column_name from information_schema.columns where table_name = 'message'")
    return {name for (name,) in found}


def test_programs_that_come_together_make_the_tables_once(postgres_url: str) -> None:
    def send(number: int) -> bool:
        with Queue(postgres_url) as queue:
            return queue.send("t", number).created

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(send, range(8)))
    with Queue(postgres_url) as queue:
        assert queue.stats("t").ready == 8


def test_a_program_that_has_looked_before_another_made_the_tables_finds_them(postgres_url: str) -> None:
    class Outrun(Layout):
        def steps(self, schema: str, found: int) -> str:
            migrating(postgres_url).begin()
            return super().steps(schema, found)

    assert migrating(postgres_url, Outrun(*OURS)).begin() is False
    with Queue(postgres_url) as queue:
        assert queue.send("t").created


def test_a_queue_that_may_not_migrate_says_what_to_run(postgres_url: str) -> None:
    with pytest.raises(SchemaMismatch, match="run `bide migrate`"), Queue(f"{postgres_url}?migrate=0") as queue:
        queue.send("t")
    assert migrating(postgres_url).begin() is True
    assert migrating(postgres_url).begin() is False
    with Queue(f"{postgres_url}?migrate=0") as queue:
        assert queue.send("t").created


def test_both_releases_work_until_the_second_part_was_run(postgres_url: str, database: psycopg.Connection) -> None:
    with Queue(postgres_url) as queue:
        queue.send("t", 1)
    later = migrating(postgres_url, NEXT)
    assert later.begin() is True
    assert later.found() == FoundMigrations(LATER, NOW)
    assert "more" in columns(database)
    # This release goes on, also when it is started anew
    with Queue(postgres_url) as queue:
        queue.send("t", 2)
        assert queue.stats("t").ready == 2
    assert later.finish() is True
    assert later.found() == FoundMigrations(LATER, LATER)
    assert database.execute("select to_regclass('bide.answer')").fetchone() == (None,)
    assert later.finish() is False
    # Then it is refused
    with pytest.raises(SchemaMismatch, match="update bide here"), Queue(postgres_url) as queue:
        queue.send("t", 3)


def test_a_migration_that_fails_changes_nothing(postgres_url: str, database: psycopg.Connection) -> None:
    migrating(postgres_url).begin()
    bad = Layout({**NEXT.migrations, f"{LATER + 1:04}_bad.sql": "alter table bide.nowhere add column x text;"}, OURS.functions)
    with pytest.raises(SchemaMismatch):
        migrating(postgres_url, bad).begin()
    assert "more" not in columns(database)
    assert migrating(postgres_url).found() == FoundMigrations(NOW, NOW)


def test_a_migration_waits_for_an_open_transaction_and_nobody_waits_behind_it(
    postgres_url: str, database: psycopg.Connection, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "bide.postgres")
    with Queue(f"{postgres_url}?timeout=2") as queue, psycopg.connect(postgres_url) as long, ThreadPoolExecutor(1) as pool:
        queue.send("t", 1, connection=long)
        later = pool.submit(migrating(postgres_url, NEXT).begin)
        while "is to be migrated" not in caplog.text:
            assert queue.send("t", 2).created
            assert not later.done()
        assert "more" not in columns(database)
        long.commit()
        assert later.result(30) is True
        assert "more" in columns(database)
        assert queue.send("t", 3).created


@pytest.mark.parametrize(
    "made",
    [
        "create table bide.message (id integer)",
        "create table bide.layout (version text)",
        "create table bide.layout (number integer, finished integer)",
        "create index message_due on bide.mine (id)",
        "create function bide.engine_us(bigint, boolean) returns text language sql as $$ select 'now' $$",
    ],
)
def test_a_schema_that_somebody_else_made_is_told_and_left_alone(
    made: str, postgres_url: str, database: psycopg.Connection
) -> None:
    database.execute("create schema bide; create table bide.mine (id integer)")
    database.execute(made.encode())
    before = database.execute("select count(*) from pg_class where relnamespace = 'bide'::regnamespace").fetchone()
    with pytest.raises(SchemaMismatch, match="use another namespace"):
        migrating(postgres_url).begin()
    with pytest.raises(SchemaMismatch, match="use another namespace"), Queue(postgres_url) as queue:
        queue.send("t", 1)
    assert database.execute("select count(*) from pg_class where relnamespace = 'bide'::regnamespace").fetchone() == before
