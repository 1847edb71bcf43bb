"""Notifications that bide did not send. Any role that may connect to the database may send one, on any channel."""

import asyncio
import random
from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from bide.core import options
from bide.engines.postgres.rows import heard_of
from bide.errors import BadTopic
from tests.postgres.owned import of_role
from tests.servers.postgres import PostgresServer

ODD = [
    "",
    " ",
    "t",
    "t ",
    " 1",
    "t  1",
    "t 1 ",
    "t 1 2",
    "t -1",
    "t +1",
    "t 1.5",
    "t 1_0",
    "t ٣٣",
    "t ²",
    "t \n1",
    "t\n1",
    "t 1\n",
    "tä 1",
    "t NaN",
    "t " + "9" * 19,
    "t " + "9" * 5000,
    "9" * 7990,
    "t" * 129 + " 1",
    "t\x1b[31m 1",
    "t \x7f",
    "{}",
    "t 0x10",
]


@pytest.mark.parametrize("payload", ODD)
def test_what_bide_did_not_send_is_ignored(payload: str) -> None:
    assert heard_of(payload) is None


def test_what_bide_sends_is_heard() -> None:
    assert heard_of("mail.send_1-x 0") == ("mail.send_1-x", 0)
    assert heard_of("t" * 128 + " 4880000000000") == ("t" * 128, 4_880_000_000_000)


def test_no_payload_raises() -> None:
    letters = "t9 .-_\n\t\0\x1b٣²ä€\U0001f600{}'\""
    draw = random.Random(35)
    for _ in range(20_000):
        note = heard_of("".join(draw.choices(letters, weights=[5, 9, 5, *[1] * (len(letters) - 3)], k=draw.randrange(200))))
        if note is not None:
            topic, due = note
            options.topic(topic)
            assert 0 <= due < 10**18


async def until_somebody_listens(client: psycopg.Connection) -> None:
    listening = "select from pg_stat_activity where query like 'listen%' and state = 'idle'"
    while client.execute(listening.encode()).fetchone() is None:  # noqa: ASYNC110  (it tells nobody)
        await asyncio.sleep(0.01)


@pytest.mark.server
async def test_nobody_ends_a_receiver_with_notifications(
    make_queue: Callable[..., Any], queue: Any, postgres_url: str, other: psycopg.Connection
) -> None:
    """A role without any right in bide's schema sends them. The receiver lives, and is woken by the next message."""
    other.execute("create role nobody2 login")
    receiver = make_queue()
    await queue.send("t", "before")
    [first] = await receiver.receive("t", wait=20)
    await first.ack()
    receiving = asyncio.create_task(receiver.receive("t", wait=20))
    await until_somebody_listens(other)
    with psycopg.connect(of_role(postgres_url, "nobody2"), autocommit=True) as nobody:
        for payload in ODD:
            nobody.execute("select pg_notify('bide', %s)", [payload])
    await queue.send("t", "after")
    [second] = await asyncio.wait_for(receiving, 4)  # a sweep comes after 5 s
    assert second.body == "after"


@pytest.mark.server
async def test_bytes_that_are_no_text_end_no_receiver(postgres_server: PostgresServer, colour: str, make_queue: Any) -> None:
    """A database without an encoding passes them on."""
    postgres_server.ask("create database bytes encoding 'SQL_ASCII' lc_collate 'C' lc_ctype 'C' template template0")
    url = postgres_server.url_of("bytes")
    queue, receiver = make_queue(url), make_queue(url)
    await queue.stats()
    with psycopg.connect(url, autocommit=True, client_encoding="sql_ascii") as nobody:
        receiving = asyncio.create_task(receiver.receive("t", wait=20))
        await until_somebody_listens(nobody)
        nobody.execute(rb"select pg_notify('bide', E't \xff\xfe 1')")
    await queue.send("t", "after")
    [delivery] = await asyncio.wait_for(receiving, 4)
    assert delivery.body == "after"


def test_the_topics_that_are_heard_are_those_that_may_be_sent() -> None:
    for topic in ("a", "A-Z_0.9", "t" * 128):
        options.topic(topic)
        assert heard_of(f"{topic} 5") == (topic, 5)
    for topic in ("", "a b", "ä", "t" * 129):
        with pytest.raises(BadTopic):
            options.topic(topic)
