"""Rows of a table that is polled, as many do it: a query each second, with FOR UPDATE SKIP LOCKED.

fill COUNT FIRST BEGIN LENGTH: so many rows, due evenly within LENGTH seconds from BEGIN seconds on, numbered from FIRST.
produce …: the same, one after the other. work: the poller.
"""

import sys
import time

import psycopg

from tests.adopt.programs.recording import record

INSERT = "insert into timers (n, due) values (%s, to_timestamp(%s::bigint / 1000.0))"
TAKE = (
    "select id, n, (extract(epoch from due) * 1000)::bigint from timers where due <= now() order by due limit 50 "
    "for update skip locked"
)


def send(count: int, first: int, begin: int, length: int, *, singly: bool) -> None:
    now = time.time_ns() // 1_000_000
    rows = [(first + number, now + begin * 1000 + length * 1000 * number // count) for number in range(count)]
    if not singly:
        with connection.transaction(), connection.cursor() as cursor:
            cursor.executemany(INSERT, rows)
        return
    for row in rows:
        connection.execute(INSERT, row)
        time.sleep(0.002)


def work() -> None:
    while True:
        with connection.transaction():
            rows = connection.execute(TAKE).fetchall()
            connection.cursor().executemany("delete from timers where id = %s", [(each,) for each, _, _ in rows])
        record((n, due) for _, n, due in rows)
        if not rows:
            time.sleep(0.2)


with psycopg.connect(sys.argv[1], autocommit=True) as connection:
    if sys.argv[2] == "work":
        work()
    else:
        send(*map(int, sys.argv[3:]), singly=sys.argv[2] == "produce")
