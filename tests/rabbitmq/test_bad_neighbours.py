"""What is wrong with one topic, broker or connection does no harm to the others."""

import asyncio
import socket
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiormq
import pytest

from bide import AsyncQueue, Queue, Sent
from bide.engines.base import NewMessage, Settings
from bide.engines.rabbitmq import source
from bide.engines.rabbitmq.aio import send
from bide.engines.rabbitmq.ladder import QueueNames
from bide.errors import ConfigError, SchemaMismatch, TooLarge
from tests.rabbitmq.conftest import New
from tests.rabbitmq.test_attempts import LEASE, claimed
from tests.servers.rabbitmq import RabbitServer
from tests.servers.rabbitmq_fixtures import NewRabbit
from tests.servers.rabbitmq_hosts import name_in
from tests.worker.conftest import once
from tests.worker.processes import PATIENCE


async def test_a_topic_that_may_not_be_read_is_left_alone_and_the_others_are_served(
    new: New, rabbitmq_server: RabbitServer, rabbitmq_url: str
) -> None:
    sender = await new(apart=True)
    await sender.put([NewMessage("bad", b"x"), *(NewMessage("good", b"x") for _ in range(10))])
    rabbitmq_server.management.put("users", "half", password="s3cret", tags="")
    rights = {"configure": "^bide:", "write": "^(bide:|amq.default$)", "read": "^bide:(?!topic:bad)"}
    rabbitmq_server.management.put("permissions", name_in(rabbitmq_url), "half", **rights)
    engine = source(Settings(url=rabbitmq_url.replace("guest:guest", "half:s3cret"))).aio()
    seen = await claimed(engine, 10, ["bad", "good"])
    assert {(each.topic, each.attempt) for each in seen} == {("good", 1)}
    for _ in range(2):
        with pytest.raises(ConfigError, match="lacks a right"):
            await engine.claim(["bad"], 1, LEASE)
    await engine.close()


def test_a_broker_that_stands_still_is_passed_over(rabbitmq_url: str) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        place = urlsplit(rabbitmq_url).netloc
        url = rabbitmq_url.replace(place, f"guest:guest@127.0.0.1:{silent.getsockname()[1]},{place.partition('@')[2]}")
        with Queue(f"{url}?timeout=2") as queue:
            queue.send("mail", 1)
            assert [each.body for each in queue.receive("mail", wait="10s")] == [1]


def test_a_message_that_is_too_large_for_the_broker_is_told_by_its_size(new_rabbitmq: NewRabbit) -> None:
    server = new_rabbitmq(lines=["max_message_size = 100000"])
    with Queue(f"{server.url}?timeout=20", max_body=1_000_000) as queue:
        with pytest.raises(TooLarge, match=r"at most 100,000 bytes \(max_message_size\), and this one has 200,002"):
            queue.send("mail", "x" * 200_000)
        queue.send("mail", 1)
        assert [each.body for each in queue.receive("mail", wait="10s")] == [1]


def test_a_row_of_an_outbox_that_is_too_large_for_the_broker_is_a_dead_letter_and_keeps_no_others(
    new_rabbitmq: NewRabbit, tmp_path: Path
) -> None:
    """Also where each call of a relay is a new process, that has to learn the limit."""
    server = new_rabbitmq(lines=["max_message_size = 100000"])
    file = f"{tmp_path}/app.db"
    with Queue(f"sqlite:///{file}") as kept, Queue(server.url, outbox=f"sqlite:///{file}") as queue:
        queue.open()
        with closing(sqlite3.connect(file)) as own:
            for number in range(60):
                if number == 30:
                    queue.send("mail", "x" * 150_000, connection=own)
                queue.send("mail", number, connection=own)
            own.commit()
        queue.relay(wait=False)
        stats = kept.stats("bide.outbox")
        got: Counter[object] = Counter()
        while len(got) < 60:
            found = queue.receive("mail", limit=100, wait=PATIENCE)
            assert found, "some were lost"
            got.update(each.body for each in found)
            for each in found:
                each.ack()
    assert (stats.dead, stats.pending, stats.leased) == (1, 0, 0)
    assert got.keys() == set(range(60))
    assert max(got.values()) <= 2


async def test_once_the_broker_has_told_its_limit_a_larger_message_does_no_harm_until_the_broker_is_asked_again(
    new_rabbitmq: NewRabbit, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, large = new_rabbitmq(lines=["max_message_size = 100000"]), "x" * 150_000
    async with AsyncQueue(server.url) as queue:
        with pytest.raises(TooLarge):
            await queue.send("mail", large)
        server.ctl("eval", "application:set_env(rabbit, max_message_size, 200000).")  # of the next channel
        with pytest.raises(TooLarge):
            await queue.send_many("mail", [1, large, 2])
        found = await asyncio.gather(*(queue.send("mail", each) for each in (3, large, 4)), return_exceptions=True)
        assert [type(each) for each in found] == [Sent, TooLarge, Sent]
        monkeypatch.setattr(send, "KNOWN", 0)
        await queue.send("mail", large)
        async with asyncio.timeout(PATIENCE):
            bodies = [(await queue.receive("mail", wait="30s"))[0].body for _ in range(3)]
        assert sorted(bodies, key=str) == [3, 4, large]


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-queue-type": "classic"},
        {"x-queue-type": "classic", "x-max-length": 1},
        {"x-queue-type": "quorum", "x-max-length": 1},
    ],
    ids=["classic", "bounded", "bounded quorum"],
)
async def test_nothing_is_sent_to_a_queue_of_somebody_else_in_the_topics_place(
    new: New, rabbitmq_url: str, arguments: dict[str, Any]
) -> None:
    """It would keep one message of ten, or lose all with its node."""
    await new()  # the ladder is there
    connection = await aiormq.connect(rabbitmq_url)
    channel = await connection.channel()
    await channel.queue_declare("bide:topic:mail", durable=True, arguments=arguments)
    engine = await new(apart=True)
    for _ in range(2):
        with pytest.raises(SchemaMismatch, match="was made with other settings"):
            await engine.put([NewMessage("mail", b"x")])
    await engine.put([NewMessage("news", b"x")])
    await channel.queue_delete("bide:topic:mail")
    await engine.put([NewMessage("mail", b"x")])
    await claimed(engine, 1)
    await connection.close()


async def test_a_queue_that_another_broker_has_made_is_the_topics(new: New, rabbitmq_url: str) -> None:
    """Before brokers had a limit of deliveries, bide asked for none."""
    await new()
    connection = await aiormq.connect(rabbitmq_url)
    channel = await connection.channel()
    made: dict[str, Any] = {"x-queue-type": "quorum", "x-dead-letter-exchange": QueueNames("bide").lost, "x-delivery-limit": 7}
    await channel.queue_declare("bide:topic:mail", durable=True, arguments=made)
    await connection.close()
    engine = await new(apart=True)
    await engine.put([NewMessage("mail", b"x")])
    await claimed(engine, 1)


async def test_a_channel_that_ends_late_takes_nothing_of_the_next_one(new: New) -> None:
    engine = await new()
    await engine.put([NewMessage("mail", b"x") for _ in range(4)])
    await claimed(engine, 1)
    old = engine._endings.line.opened
    assert old is not None
    await engine._endings.line.drop()
    await engine._inbox.receive(["mail"], 4)
    await once(lambda: len(engine._inbox._here["mail"]) == 4)
    engine._endings._on_lost(old)
    await engine._endings.line.drop(old)
    assert {each.attempt for each in await claimed(engine, 4)} == {1}
