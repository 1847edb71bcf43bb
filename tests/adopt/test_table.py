"""`bide adopt table`: rows that somebody polls become messages, on PostgreSQL and SQLite."""

import json
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg
import pytest

from bide import Queue
from bide.adopt.adoption import Adoption
from bide.adopt.shape import Shape
from bide.adopt.table.rows import Columns
from bide.adopt.table.table import SourceTable, TableStatements, database
from tests.adopt.reading import URL, everything
from tests.cli.running import Bide

QUERY = "select id, due, note from timers where not done order by due"
TAKE = "update timers set done = true where id = :id"
UNDO = "update timers set done = false where id = :id"
COMMAND = ("adopt", "table", "--query", QUERY, "--take", TAKE, "--topic", "t", "--json")
BASE = 4_000_000_000


class Old:
    """A database with a table of timers."""

    def __init__(self, url: str, path: Path | None) -> None:
        self.url: str = url
        self._path = path
        due = "text" if path else "timestamptz"
        self.do(f"create table timers (id integer primary key, due {due}, note text, done boolean not null default false)")

    def fill(self, count: int, first: int = 0) -> None:
        for number in range(first, first + count):
            self.do("insert into timers (id, due, note) values (?, ?, ?)", number, instant(number), f"n{number}")

    def do(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        if self._path:
            with sqlite3.connect(self._path) as file:
                return file.execute(statement, values).fetchall()
        with psycopg.connect(self.url, autocommit=True) as server:
            cursor = server.execute(statement.replace("?", "%s"), values)  # type: ignore[arg-type,unused-ignore]
            return cursor.fetchall() if cursor.description else []

    def waiting(self) -> list[int]:
        return [each for (each,) in self.do("select id from timers where not done order by id")]


def instant(number: int) -> str:
    return datetime.fromtimestamp(BASE + number, UTC).isoformat()


@pytest.fixture(params=["sqlite", "postgres"])
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Old]:
    if request.param == "sqlite":
        path = tmp_path / "old.db"
        sqlite3.connect(path).close()
        yield Old(f"sqlite:///{path}", path)
    else:
        yield Old(request.getfixturevalue("postgres_url"), None)


def test_rows_become_messages_at_their_times(bide: Bide, old: Old) -> None:
    old.fill(1_100)
    looked = json.loads(bide(*COMMAND, "--dry-run", "--source", old.url).out)
    assert (looked["count"], looked["first"][0]["due_ms"]) == (1_100, BASE * 1_000)
    ended = bide(*COMMAND, "--source", old.url)
    assert (ended.code, ended.err, json.loads(ended.out)["adopted"]) == (0, "", 1_100)
    assert {each.body["note"]: each.due for each in everything("t")} == {
        f"n{number}": (BASE + number) * 1_000 for number in range(1_100)
    }
    assert old.waiting() == []
    assert old.do("select * from bide_adopt") == []


def test_the_url_may_stand_in_front(bide: Bide, old: Old) -> None:
    old.fill(1)
    assert json.loads(bide("adopt", "table", old.url, *COMMAND[2:]).out)["adopted"] == 1


@pytest.mark.parametrize("old", ["postgres"], indirect=True)
def test_columns_are_topic_key_and_body(bide: Bide, old: Old) -> None:
    body = '{"n":1.10,"big":12345678901234567890123}'
    old.do("create table jobs (id uuid primary key, due timestamptz, topic text, who text, body jsonb, txt json)")
    old.do("insert into jobs values (gen_random_uuid(), ?, 'mail', 'anna', ?, ?)", instant(5), body, body)
    query, take = "select id, due, topic, who, txt from jobs", "delete from jobs where id = :id::uuid"
    command = ["adopt", "table", "--query", query, "--take", take, "--topic-field", "topic", "--key-field", "who"]
    ended = bide(*command, "--body", "txt", "--source", old.url)
    assert (ended.code, ended.err) == (0, "")
    [found] = everything("mail")
    assert (found.key, found.due, found.body["n"]) == ("anna", (BASE + 5) * 1_000, 1.1)
    assert old.do("select count(*) from jobs") == [(0,)]


def test_a_body_of_columns_has_all_but_the_due_time_and_the_topic(bide: Bide, old: Old) -> None:
    old.fill(1)
    query = QUERY.replace("note", "id as order_id, note")
    command = ("adopt", "table", "--query", query, "--take", TAKE, "--topic-field", "note", "--key-field", "order_id")
    assert bide(*command, "--source", old.url).code == 0
    [found] = everything("n0")
    assert (found.key, found.body) == ("0", {"id": 0, "order_id": 0})


def test_a_body_that_is_a_column_of_text_may_become_an_object(bide: Bide, old: Old) -> None:
    old.fill(1)
    assert bide(*COMMAND, "--body", "note", "--body-as", "name", "--source", old.url).code == 0
    assert [each.body for each in everything("t")] == [{"name": "n0"}]


@pytest.mark.parametrize("old", ["postgres"], indirect=True)  # in SQLite, one transaction at a time changes the file
def test_rows_that_a_poller_has_are_left_to_it(bide: Bide, old: Old) -> None:
    old.fill(10)
    with psycopg.connect(old.url) as poller:
        poller.execute("select id from timers where id < 4 for update skip locked")
        assert json.loads(bide(*COMMAND, "--source", old.url).out)["adopted"] == 6
    assert old.waiting() == [0, 1, 2, 3]


def test_a_row_without_a_time_zone_stays_and_blocks_nothing(bide: Bide, old: Old) -> None:
    old.fill(3)
    query = QUERY.replace("due, note", "case when id = 0 then '2026-01-01 00:00:00' else cast(due as text) end as due, note")
    ended = bide("adopt", "table", "--query", query, *COMMAND[4:], "--source", old.url)
    told = json.loads(ended.out)
    assert (ended.code, told["adopted"]) == (1, 2)
    utc = "due || 'Z'" if old.url.startswith("sqlite") else "due at time zone 'UTC'"
    says = f"has a due time without a time zone: say which in the query, as in {utc} as due"
    assert (told["refused"], old.waiting()) == ({says: 1}, [0])
    if old.url.startswith("sqlite"):  # what it says works
        query = f"select id, {utc} as due from (select id, '2026-01-01 00:00:00' as due from timers where not done) as naive"
        assert bide("adopt", "table", "--query", query, *COMMAND[4:], "--source", old.url).code == 0
        assert old.waiting() == []


@pytest.mark.parametrize(
    ("take", "says"),
    [
        ("update timers set note = 'x' where id = :id", "--query still finds rows"),
        ("update timers set done = true", "--take changed"),
        ("update timers set done = true where id = -1", "--take changed 0 rows"),
        ("delete from nowhere where id = :id", "refuses a statement"),
        ("delete from timers where id = :idd", "--take says :idd, and --query has no column idd. It has id, due, note."),
    ],
)
def test_a_take_that_does_something_else_changes_nothing(bide: Bide, old: Old, take: str, says: str) -> None:
    old.fill(3)
    ended = bide("adopt", "table", "--query", QUERY, "--take", take, "--topic", "t", "--source", old.url)
    assert ended.code == 1
    assert says in ended.err
    assert old.waiting() == [0, 1, 2]
    assert everything("t") == []


def test_an_id_that_is_not_unique_is_told(bide: Bide, old: Old) -> None:
    old.fill(3)
    command = ("--take", "update timers set done = true where note = :note", "--topic", "t", "--source", old.url)
    old.do("update timers set note = 'n0' where id = 2")
    seen = bide("adopt", "table", "--query", QUERY, "--id", "note", *command)
    assert seen.code == 1
    assert (
        "--take changed 5 rows in place of 3, and was taken back. It must change the row with :note, and no other. " in seen.err
    )
    assert "--query found 2 rows whose note is 'n0': it must be unique. Name another column with --id." in seen.err
    unseen = bide("adopt", "table", "--query", QUERY.replace("not done", "not done and id < 2"), "--id", "note", *command)
    assert "--take changed 3 rows in place of 2" in unseen.err
    assert "Is the column note unique in the table? If not, name another one with --id." in unseen.err
    assert old.waiting() == [0, 1, 2]


def test_a_dry_run_finds_a_name_that_is_no_column(bide: Bide, old: Old) -> None:
    old.fill(3)
    command = ("adopt", "table", "--query", QUERY, "--topic", "t", "--dry-run", "--source", old.url)
    for option, statement in (("--take", TAKE), ("--undo", UNDO)):
        ended = bide(*command, option, statement.replace(":id", ":idd"))
        assert (ended.code, f"{option} says :idd, and --query has no column idd" in ended.err) == (1, True)


@pytest.mark.parametrize("end", ["limit 5", "for update", "LIMIT 5 OFFSET 2", "for update skip locked"])
def test_a_query_with_a_limit_is_refused(bide: Bide, end: str, tmp_path: Path) -> None:
    ended = bide(
        "adopt", "table", "--query", f"{QUERY} {end}", "--topic", "t", "--dry-run", "--source", f"sqlite:///{tmp_path}/x"
    )
    assert ended.code == 2
    assert "Leave LIMIT" in ended.err


@pytest.mark.parametrize(
    "end",
    [
        "and note <> 'limit'",
        "and note <> 'it''s for update' /* no limit */",
        "order by (select max(n) from (select 1 as n limit 1) as one), due -- no limit, don't lock",
    ],
)
def test_a_text_a_comment_or_a_part_of_the_query_may_have_these_words(bide: Bide, old: Old, end: str) -> None:
    old.fill(2)
    query = f"select id, due, note from timers where not done {end}"
    ended = bide("adopt", "table", "--query", query, *COMMAND[4:], "--source", old.url)
    assert (ended.code, ended.err, json.loads(ended.out)["adopted"]) == (0, "", 2)


def test_a_name_in_a_text_is_text(bide: Bide, old: Old) -> None:
    old.fill(2)
    take = "update timers set done = true, note = 'as :id, 100%' where id = :id -- :nothing"
    ended = bide("adopt", "table", "--query", QUERY, "--take", take, *COMMAND[6:], "--source", old.url)
    assert (ended.code, ended.err) == (0, "")
    assert old.do("select distinct note from timers") == [("as :id, 100%",)]


class Killed(Exception):
    """The end of a run, at some place."""


def die(*_: Any) -> None:
    raise Killed


def made(old: Old, undo: str | None = None) -> SourceTable:
    said = TableStatements(query=QUERY, take=TAKE, undo=undo)
    return SourceTable(database(old.url), said, Columns(), Shape(topic="t", key_field="note"))


@pytest.mark.parametrize("place", ["put_many", "finish"])
def test_a_killed_run_goes_on_where_it_was(bide: Bide, old: Old, place: str, folder: Path) -> None:
    old.fill(30)
    with Queue(URL) as queue:
        queue.session.open()
        source = made(old)
        adoption = Adoption(source, queue, batch=10)
        setattr(queue.session if place == "put_many" else source, place, die)
        with pytest.raises(Killed):
            adoption.run(lambda _: None, lambda: False)
        source.close()
    assert old.waiting() == list(range(20, 30))
    ended = bide(*COMMAND, "--key-field", "note", "--source", old.url)
    told = json.loads(ended.out)
    assert (ended.code, told["adopted"], told["resumed"]) == (0, 30, 20)
    assert len(everything("t")) == 30


def test_a_row_that_the_queue_does_not_take_goes_back(bide: Bide, old: Old, folder: Path) -> None:
    old.fill(3)
    with Queue(URL) as queue:
        queue.send("t", "first", key="n1", delay="1h")
    command = (*COMMAND, "--key-field", "note", "--source", old.url)
    held = bide(*command)
    assert held.code == 1
    assert "Only --undo can say how" in held.err
    assert len(old.do("select name from bide_adopt")) == 3
    ended = bide(*command, "--undo", UNDO)
    told = json.loads(ended.out)
    assert (ended.code, told["adopted"], list(told["refused"].values())) == (1, 2, [1])
    assert old.waiting() == [1]
    assert old.do("select * from bide_adopt") == []


def test_numbers_are_seconds_or_milliseconds(bide: Bide, old: Old) -> None:
    soon = int(time.time()) + 100
    old.fill(2)
    query = QUERY.replace("due,", f"case when id = 0 then {soon} else {soon}000 end as due,")
    assert bide("adopt", "table", "--query", query, *COMMAND[4:], "--source", old.url).code == 0
    assert {each.due for each in everything("t")} == {soon * 1_000}


def asked(command: tuple[str, ...], query: str) -> list[str]:
    """The command with another query."""
    return [query if each == QUERY else each for each in command]


def test_rows_that_cannot_be_read_hold_nothing_up(bide: Bide, old: Old) -> None:
    old.do("insert into timers (id, due, note) values " + ", ".join(f"({number}, null, 'x')" for number in range(1_100)))
    old.fill(3, 2_000)
    ended = bide(*asked(COMMAND, "select id, due from timers where not done order by id"), "--source", old.url)
    told = json.loads(ended.out)
    assert (told["adopted"], told["refused"]) == (3, {"has no due time": 1_100})
    ended = bide(*asked(COMMAND, "select null as id, due from timers where not done"), "--source", old.url)
    assert json.loads(ended.out)["refused"] == {"has no id: select it, or name the column with --id": 1_100}


def test_a_value_that_cannot_be_read_holds_up_no_other_row(bide: Bide, old: Old) -> None:
    values = (
        ("cast(x'ff41' as text)", "x'00'", "9e999")
        if old.url.startswith("sqlite")
        else ("'NaN'::numeric", "'Infinity'::numeric", "1e5000::numeric", "'\\x00'::bytea", "'nan'::float")
    )
    old.fill(3)
    for value in values:
        query = f"select id, due, case when id = 1 then {value} end as note from timers where not done"
        ended = bide(*asked(COMMAND, query), "--source", old.url)
        told = json.loads(ended.out)
        assert (ended.code, told["adopted"], sum(told["refused"].values())) == (1, 2, 1), value
        old.do("update timers set done = false")


def test_a_row_that_is_due_never_stays(bide: Bide, postgres_url: str) -> None:
    old = Old(postgres_url, None)
    old.fill(3)
    old.do("update timers set due = 'infinity' where id = 1")
    told = json.loads(bide(*COMMAND, "--source", old.url).out)
    assert (told["adopted"], told["refused"]) == (2, {"has a due time that is neither a timestamp nor a number": 1})


@pytest.mark.parametrize("end", ["", " -- what waits"])
def test_the_last_line_of_a_query_may_be_a_comment(bide: Bide, old: Old, end: str) -> None:
    old.fill(3)
    with_lock = SourceTable(database(old.url), TableStatements(query=QUERY + end, take=TAKE), Columns(), Shape(topic="t"))
    assert [len(with_lock.take(2).found) for _ in range(3)] == [2, 1, 0]
    with_lock.close()


def test_a_query_whose_rows_cannot_be_locked_is_refused(bide: Bide, postgres_url: str) -> None:
    old = Old(postgres_url, None)
    old.fill(1)
    query = "with waiting as (select id, due::timestamp with time zone from timers where not done) select * from waiting"
    ended = bide(*asked(COMMAND, query), "--source", old.url)
    assert (ended.code, old.waiting()) == (1, [0])
    assert "write --query without WITH" in ended.err


def test_a_row_with_a_uuid_that_goes_back_is_not_taken_again(postgres_url: str, folder: Path) -> None:
    old = Old(postgres_url, None)
    old.do("create table jobs (id uuid primary key default gen_random_uuid(), done boolean not null default false)")
    old.do("insert into jobs select from generate_series(1, 3)")
    query = f"select id, {BASE} as due from jobs where not done"
    said = TableStatements(
        query=query, take="update jobs set done = true where id = :id", undo="update jobs set done = false where id = :id"
    )
    table = SourceTable(database(old.url), said, Columns(), Shape(topic="t"))
    table.give_back([each.name for each in table.take(2).found])
    assert [len(table.take(3).found) for _ in range(2)] == [1, 0]
    table.close()


def test_a_file_that_is_no_database_is_told(bide: Bide, tmp_path: Path) -> None:
    (tmp_path / "old.db").write_text("this is a text file of some length\n" * 100)
    for more in ((), ("--dry-run",)):
        ended = bide(*COMMAND, "--source", f"sqlite:///{tmp_path}/old.db", *more)
        assert (ended.code, ended.out) == (1, "")
        assert "old.db is no database of SQLite, or is damaged (file is not a database): check the URL" in ended.err
