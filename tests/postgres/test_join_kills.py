"""Programs are killed in the midst of their transactions: what was committed has happened once, and nothing else has."""

import os
import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from bide import Queue

LONG = bool(os.environ.get("BIDE_LONG"))
SENDS = 10_000 if LONG else 400
SENDERS = 100 if LONG else 5  # at least: so many share the sends, however late each is killed
ACKS = 2_000 if LONG else 200

SENDER = """
    import asyncio, sys
    import psycopg, sqlalchemy
    from sqlalchemy.orm import Session
    from bide import AsyncQueue, Queue

    url, how, first, last = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    BOOK = "insert into booked values (%d)"

    def by_psycopg():
        with Queue(url) as queue, psycopg.connect(url) as own:
            for seat in range(first, last):
                own.execute(BOOK % seat)
                queue.send("t", seat, key=str(seat), connection=own)
                own.commit() if seat % 2 else own.rollback()
                print(seat)

    def by_sqlalchemy():
        engine = sqlalchemy.create_engine(url.replace("postgres:", "postgresql+psycopg:"))
        with Queue(url) as queue:
            for seat in range(first, last):
                with Session(engine) as session:
                    queue.send("t", seat, connection=session)
                    session.execute(sqlalchemy.text(BOOK % seat))
                    session.commit() if seat % 2 else session.rollback()
                print(seat)
        engine.dispose()

    async def by_asyncio():
        async with AsyncQueue(url) as queue, await psycopg.AsyncConnection.connect(url) as own:
            for seat in range(first, last):
                await own.execute(BOOK % seat)
                await queue.send_many("t", [seat], connection=own)
                await (own.commit() if seat % 2 else own.rollback())
                print(seat)

    {"psycopg": by_psycopg, "sqlalchemy": by_sqlalchemy, "asyncio": lambda: asyncio.run(by_asyncio())}[how]()
    print("over")
"""

WORKER = """
    import random, sys
    from contextlib import suppress
    import psycopg
    from bide import LeaseLost, Queue

    url = sys.argv[1]
    with Queue(url) as queue, psycopg.connect(url) as own:
        while (stats := queue.stats("t")).pending + stats.leased:
            for delivery in queue.receive("t", limit=3, wait="1s", lease="1s"):
                own.execute("insert into booked values (%s)", [delivery.body])
                try:
                    delivery.ack(connection=own)
                except LeaseLost:
                    own.rollback()
                    continue
                if random.random() < 0.5:
                    own.commit()
                else:
                    own.rollback()
                    if random.random() < 0.9:
                        with suppress(LeaseLost):
                            delivery.ack(connection=own) if random.random() < 0.01 else delivery.retry(0)
                        own.rollback()
                print(delivery.body)
    print("over")
"""


def booked(other: psycopg.Connection) -> Counter[int]:
    return Counter(seat for (seat,) in other.execute("select seat from booked"))


@pytest.mark.timeout(1_800 if LONG else 120)
def test_exactly_what_was_committed_is_delivered_whoever_is_killed(
    postgres_url: str, other: psycopg.Connection, start: Callable[..., Any]
) -> None:
    rng = random.Random(14)
    with Queue(postgres_url) as queue:
        queue.stats()
        first, kills = 0, 0
        while first < SENDS:
            last = min(SENDS, first + SENDS // SENDERS)
            child = start(SENDER, postgres_url, ("psycopg", "sqlalchemy", "asyncio")[kills % 3], first, last)
            said: list[str] = []
            for _ in range(rng.randrange(1, SENDS // 5 if not LONG else SENDS // 60)):
                said.append(child.line())
                if said[-1] == "over":
                    break
            said += child.kill()
            first = int([line for line in said if line != "over"][-1]) + 2  # the one after it may have been committed or not
            kills += 1
        delivered: Counter[int] = Counter()
        while deliveries := queue.receive("t", limit=1_000):
            delivered.update(each.body for each in deliveries)
            assert all(queue.ack_many(deliveries))
    assert kills >= SENDERS
    assert delivered == booked(other)
    assert SENDS / 3 < len(delivered) <= SENDS / 2
    assert all(seat % 2 for seat in delivered)


@pytest.mark.timeout(1_800 if LONG else 120)
def test_work_that_is_committed_with_its_ack_is_done_once_whoever_is_killed(
    postgres_url: str, other: psycopg.Connection, start: Callable[..., Any]
) -> None:
    rng = random.Random(14)
    with Queue(postgres_url) as queue:
        for number in range(ACKS):
            queue.send("t", number, max_attempts=1_000)
        kills, over = 0, False
        while not over:
            children = [start(WORKER, postgres_url) for _ in range(2)]
            lines = rng.randrange(1, ACKS // 10)
            while lines and not over:
                over = children[lines % 2].line() == "over"
                lines -= 1
            for child in children:
                if not over:
                    child.kill()
                    kills += 1
        stats = queue.stats("t")
    assert kills >= 5
    assert (stats.pending, stats.leased, stats.dead) == (0, 0, 0)
    assert booked(other) == Counter(range(ACKS))
