"""Files of older layouts get the present one, with all that they hold, whatever else is in them."""

import sqlite3
from contextlib import closing
from pathlib import Path

from bide import Queue
from bide.engines.base import End, Settings
from bide.engines.sqlite import file, source
from tests.sqlite.test_file import pragma

FIRST = """pragma user_version = 1; insert into topic (space, name) values ('bide', 't');
insert into message (salt, topic, stage, level, due, attempt, most, body, token, request, until, died) values
(9, 1, 0, 1, 5, 1, 9, x'0a', null, null, null, null), (9, 1, 1, 1, 3, 1, 9, x'0b', 7, 'r', 9000, null),
(9, 1, 2, 1, 4, 9, 9, x'0c', null, null, null, 4);"""


def test_what_a_file_of_the_first_layout_holds_goes_on(path: Path, url: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(f"pragma application_id = {file.APPLICATION_ID};{file.MIGRATIONS[0]}{FIRST}")
    with closing(source(Settings(url=url)).sync()) as engine:
        engine.open()
        held = [*engine.claim(["t"], 9, 1, now=10).messages, *engine.claim([], 1, 1, request="r", now=10).messages]
        engine.settle([End("t", each.id, each.token, "retry", delay=10) for each in held], now=10)
        engine.requeue("t", now=20)
        found = {each.body: (each.since, each.due) for each in engine.claim(["t"], 9, 1, now=20).messages}
    assert (pragma(path, "user_version"), found) == (len(file.MIGRATIONS), {b"\n": (5, 20), b"\v": (3, 20), b"\f": (20, 20)})


OF_THE_APPLICATION = """
create table orders (id integer primary key);
create view broken as select * from nothere;
create view pending as select id, topic from message where stage = 0;
create trigger paid after delete on orders begin update message set level = 0 where key = old.id; end;
create table given (id); create table message_new (id);
"""


def test_what_else_the_application_has_in_the_file_does_not_keep_it_from_the_present_layout(path: Path, url: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(
            f"pragma application_id = {file.APPLICATION_ID};{file.MIGRATIONS[0]}{FIRST}{OF_THE_APPLICATION}"
        )
    with closing(Queue(url)) as queue:
        queue.send("t", 1)
        assert queue.stats("t").leased == 1
    with closing(sqlite3.connect(path)) as connection:
        assert len(connection.execute("select * from pending").fetchall()) == 2
        connection.execute("insert into orders values (1)")
        connection.execute("delete from orders")
