"""`bide migrate`, as a user calls it."""

import psycopg

from bide import Queue
from bide.engines.postgres.layout import OURS
from tests.cli.running import Bide


def test_tables_are_made_once(bide: Bide, postgres_url: str) -> None:
    shown = postgres_url.replace("postgres@", "").partition("?")[0]
    looked = bide("migrate", "--check", "--url", postgres_url)
    assert (looked.code, looked.out) == (1, f"{shown} has no tables of bide in the schema bide: run `bide migrate`.\n")
    made = bide("migrate", "--url", postgres_url)
    assert made.code == 0
    assert made.out == f"{shown} has layout {OURS.number} now.\n"
    again = bide("migrate", "--finish", "--url", postgres_url)
    assert (again.code, again.out.startswith("Nothing to do: ")) == (0, True)
    assert bide("migrate", "--check", "--finish", "--url", postgres_url).code == 0
    with Queue(f"{postgres_url}?migrate=0") as queue:
        assert queue.send("t").created


def test_what_would_be_run_can_be_printed_and_run_by_others(bide: Bide, postgres_url: str) -> None:
    printed = bide("migrate", "--sql", "--url", postgres_url)
    assert printed.code == 0
    told: list[str | None] = []
    with psycopg.connect(postgres_url, autocommit=True) as database:
        database.add_notice_handler(lambda notice: told.append(notice.message_primary))
        database.execute(printed.out.encode())
    assert told == []
    with Queue(f"{postgres_url}?migrate=0") as queue:
        assert queue.send("t").created
    assert bide("migrate", "--sql", "--url", postgres_url).out == "-- nothing to do\n"


def test_commands_that_look_or_change_make_no_tables(bide: Bide, bide_process: Bide, postgres_url: str) -> None:
    for command in (["stats"], ["topics"], ["list", "t"], ["cancel", "t", "--key", "k"], ["pause", "t"]):
        told = bide(*command, "--url", postgres_url)
        assert (told.code, told.out) == (1, "")
        assert "has no tables of bide in the schema bide: run `bide migrate`." in told.err
    words = "bide list "
    bide_process(BIDE_URL=postgres_url, _BIDE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD="2")
    with psycopg.connect(postgres_url) as database:
        assert database.execute("select 1 from pg_namespace where nspname = 'bide'").fetchone() is None
    assert bide("send", "t", "--url", postgres_url).code == 0
    assert "ready             1" in bide("stats", "--url", postgres_url).out


def test_other_queues_have_no_tables_to_migrate(bide: Bide) -> None:
    told = bide("migrate", "--url", "memory://")
    assert told.code != 0
    assert "Only PostgreSQL queues have tables to migrate." in told.err


def test_a_server_that_is_not_there_is_told_of_without_the_password(bide: Bide) -> None:
    told = bide("migrate", "--url", "postgres://me:s3cret@127.0.0.1:1/shop")
    assert told.code != 0
    assert "postgres://127.0.0.1:1/shop" in told.err
    assert "s3cret" not in told.err + told.out
