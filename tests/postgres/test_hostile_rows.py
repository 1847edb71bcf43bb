"""Rows that bide did not write. The role that sends, as docs/postgres.md grants it, may write them."""

import asyncio
import logging
from typing import Any

import psycopg
import pytest

from bide import AsyncQueue, CancelResult, Queue, RescheduleResult, Worker
from bide.cli import main
from bide.engines.base import Move, Ref, Settings
from bide.engines.postgres import source
from bide.types import State

HEADERS = [
    "xx",
    "[]",
    '"a"',
    "1",
    "null",
    "{",
    '{"a":1}',
    '{"a":null}',
    '{"a":{"b":"c"}}',
    '{"a":"\\ud800"}',
    "[" * 100_000,
    " ",
]
COLUMNS = {
    "attempt": ["2147483647", "-2147483648", "-1", "1000000"],
    "most": ["0", "-1", "2147483647"],
    "due": ["0", "-1", "-9223372036854775808", "9223372036854775807", "253402300800000"],
    "level": ["3", "-1", "32767"],
    "token": ["0", "-1", "9223372036854775807", "-9223372036854775808"],
    "life": ["0", "-1", "9223372036854775807"],
    "expires": ["0", "-1", "9223372036854775807", "-9223372036854775808"],
    "since": ["0", "-9223372036854775808", "9223372036854775807"],
    "until": ["0", "1", "-1", "9223372036854775807"],
    "began": ["-1", "9223372036854775807"],
    "error": [r"E'\x1b[31m\n'", "repeat('x', 1000000)"],
    "key": ["''", r"E'\x1b\n'", "repeat('k', 2000)"],
    "body": [r"'\x'", r"'\xff00'", "decode(repeat('5b', 100000), 'hex')"],
    "traces": [r"'{NULL}'", r"'{{a,b},{c,d}}'", r"'[5:6]={a,b}'", r"'{}'", r"array['\xff'::bytea]"],
    "request": ["''", "'x'"],
    "headers": [f"'{each}'" for each in HEADERS],
}
ROW = {"due": "1", "most": "3", "level": "1", "topic": "'t'", "body": "'{\"n\": -1}'"}
HOSTILE = [(column, value) for column, values in COLUMNS.items() for value in values]


def insert(client: psycopg.Connection, number: int, **columns: str) -> None:
    row = {"id": str(number), **ROW, **columns}
    client.execute(f"insert into bide.message ({', '.join(row)}) values ({', '.join(row.values())})".encode())


async def test_headers_that_can_not_be_read_make_a_dead_letter(queue: Any, other: psycopg.Connection) -> None:
    for number, headers in enumerate(HEADERS):
        insert(other, number + 1, headers=f"'{headers}'")
    sent = await queue.send_many("t", range(50))
    assert all([(await queue.get(f"{number + 1:016x}")).headers == {} for number in range(len(HEADERS))])
    assert len(await queue.messages("t", limit=100)) == 50 + len(HEADERS)
    received = await queue.receive("t", limit=100)
    assert {each.id for each in received} == {each.id for each in sent}
    stats = await queue.stats("t")
    assert (stats.leased, stats.dead) == (50, len(HEADERS))
    dead = await queue.messages("t", state="dead")
    assert [each.headers for each in dead] == [{}] * len(HEADERS)
    assert all("headers are not a JSON object of texts" in (each.last_error or "") for each in dead)


@pytest.mark.parametrize("column", COLUMNS)
def test_hostile_rows_harm_no_other(
    postgres_url: str, other: psycopg.Connection, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    engine = source(Settings(url=postgres_url)).sync()
    engine.open()
    hostile = [65_536 * (number + 1) for number in range(len(COLUMNS[column]))]
    with Queue(postgres_url) as queue:
        queue.send_many("t", range(3))
        for number, value in zip(hostile, COLUMNS[column], strict=True):
            insert(other, number, **{column: value})
            queue.get(f"{number:016x}")
        states: tuple[State | None, ...] = (None, "ready", "scheduled", "leased", "dead")
        for state in states:
            queue.messages("t", state=state)
        assert queue.stats("t").ready >= 3
        bodies = set()
        for _ in range(6):  # attempts, and what upkeep gives back
            for delivery in queue.receive("t", limit=100):
                if isinstance(delivery.body, int):
                    bodies.add(delivery.body)
                    delivery.ack()
                else:
                    delivery.retry(0)
        assert bodies == {0, 1, 2}
        other.execute("update bide.message set until = 2 where until is not null")
        refs = [Ref(id=queue.send("t", delay=60).id) for _ in range(2)] + [Ref(id=f"{number:016x}") for number in hostile]
        for origin in ("due", "since", "now"):
            assert engine.reschedule([Move(ref, 50, origin=origin) for ref in refs])[:2] == [RescheduleResult.MOVED] * 2
        assert engine.cancel(refs)[:2] == [CancelResult.CANCELLED] * 2
        queue.requeue("t")
        queue.receive("t", limit=100)
    engine.close()
    for command in ("list t", "stats t", "topics", "dead t"):
        assert main([*command.split(), "--url", postgres_url]) == 0
    assert "Traceback" not in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    "columns",
    [
        {"topic": "repeat('x', 9000)"},
        {"topic": "(select string_agg(md5(i::text), '') from generate_series(1, 100) as i)"},
        {"traces": r"'[2147483646:2147483646]={a}'"},
        {"traces": r"'[-2147483648:-2147483647]={a,b}'"},
        {"due": "-9223372036854775808"},
    ],
)
@pytest.mark.parametrize("attempt", [1, 3])
def test_no_row_keeps_upkeep_from_the_others(
    postgres_url: str, other: psycopg.Connection, columns: dict[str, str], attempt: int
) -> None:
    engine = source(Settings(url=postgres_url)).sync()
    engine.open()
    with Queue(postgres_url) as queue:
        queue.send("t", 1)
        insert(other, 65_536, until="5", attempt=str(attempt), **columns)
        insert(other, 131_072, until="6", attempt="1")
        engine.tend()
        assert 131_072 in {int(each.id, 16) for each in queue.messages("t", state="ready")}
        queue.stats()
    engine.close()


async def test_no_row_ends_a_worker(postgres_url: str, other: psycopg.Connection, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    queue = AsyncQueue(postgres_url)
    handled: asyncio.Queue[int] = asyncio.Queue()

    @queue.task("t")
    async def work(n: int) -> None:
        handled.put_nowait(n)

    async with queue, Worker(queue, lease="5s"):
        await work.send(n=0)
        assert await asyncio.wait_for(handled.get(), 20) == 0
        for number, (column, value) in enumerate(HOSTILE):
            insert(other, 65_536 * (number + 1), **{column: value})
        for n in range(1, 20):
            await work.send(n=n)
        seen: set[int] = set()
        while not seen >= set(range(1, 20)):
            seen.add(await asyncio.wait_for(handled.get(), 20))
    assert not [each for each in caplog.records if each.levelno >= logging.CRITICAL]
