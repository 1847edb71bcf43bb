"""The queue that many write by hand in PostgreSQL: one table with an index on the due time, and SKIP LOCKED.

It has no leases, attempts, priorities, topics or dead letters, and it tells nobody that a message is due. A transaction is open
while messages are worked on, and a crash rolls it back.
"""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import psycopg

TABLE = """
create table job (
    id bigint generated always as identity primary key, key text unique, due timestamptz not null, body jsonb not null
);
create index job_due on job (due)
"""
SEND = "insert into job (due, body) values (clock_timestamp() + make_interval(secs => %s), %s)"
SEND_MANY = """
insert into job (due, body)
select clock_timestamp() + make_interval(secs => g.delay), g.body from unnest(%s::float8[], %s::jsonb[]) as g(delay, body)
"""
SEND_KEYED = """
insert into job (key, due, body)
select g.key, clock_timestamp() + make_interval(secs => g.delay), g.body
from unnest(%s::text[], %s::float8[], %s::jsonb[]) as g(key, delay, body)
on conflict do nothing
"""
TAKE = "select id, body::text from job where due <= clock_timestamp() order by due limit %s for update skip locked"
END = "delete from job where id = any(%s)"


class ByHand:
    """On a connection in autocommit, as psycopg recommends it: it prepares a statement that comes again and again."""

    def __init__(self, url: str) -> None:
        self.connection: psycopg.Connection[Any] = psycopg.connect(url, autocommit=True)
        self.connection.execute(TABLE)

    def send(self, body: Any, delay: float = 0) -> int:
        return self.connection.execute(SEND, [delay, _text(body)]).rowcount

    def send_many(self, bodies: Sequence[Any], delays: Sequence[float]) -> int:
        return self.connection.execute(SEND_MANY, [delays, [_text(body) for body in bodies]]).rowcount

    def send_keyed(self, bodies: Sequence[Any], delays: Sequence[float], keys: Sequence[str]) -> int:
        return self.connection.execute(SEND_KEYED, [keys, delays, [_text(body) for body in bodies]]).rowcount

    def work(self, limit: int, handle: Callable[[Any], object]) -> int:
        """Take messages that are due, handle them, and end them. Gives how many there were."""
        with self.connection.transaction():
            found = self.connection.execute(TAKE, [limit]).fetchall()
            for _, body in found:
                handle(msgspec.json.decode(body))
            if found:
                self.connection.execute(END, [[number for number, _ in found]])
        return len(found)

    def close(self) -> None:
        self.connection.close()


def _text(body: Any) -> str:
    return msgspec.json.encode(body).decode()
