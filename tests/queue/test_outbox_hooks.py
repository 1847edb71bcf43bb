"""Hooks of a sender see what goes through an outbox when it is sent, and those of a relay when it is handed on."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, BadOption, Call, CancelResult, Hook, OutcomeUnknown, Outgoing, Queue
from bide.queue import outbox
from tests.queue.test_outbox_handed_on import die


class Traced(Hook):
    def __init__(self, content: Any) -> None:
        self.content = content
        self.puts: list[Call] = []

    def before(self, call: Call) -> None:
        if call.verb == "put":
            for message in call.asked:
                message.headers.setdefault("trace", self.content)

    def after(self, call: Call) -> None:
        if call.verb == "put":
            self.puts.append(call)


@pytest.fixture
def store(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/app.db"
    with Queue(url) as there:
        there.stats()  # makes the tables
    return url


@pytest.fixture
def own(store: str, tmp_path: Path) -> Iterator[sqlite3.Connection]:
    """The caller's own connection."""
    with closing(sqlite3.connect(tmp_path / "app.db")) as connection:
        yield connection


@pytest.mark.parametrize("hooks", [[], [Traced("relay")]], ids=["relay without", "relay with"])
async def test_a_header_of_the_senders_hook_arrives_whoever_hands_the_message_on(
    make_queue: Callable[..., Any], store: str, own: sqlite3.Connection, hooks: list[Hook], tmp_path: Path
) -> None:
    url, sender = f"memory://{tmp_path.name}", Traced("sender")
    async with make_queue(url, outbox=store, hooks=[sender]) as queue:
        sent = await queue.send_many("t", [1, Outgoing(2, headers={"mine": "1"})], connection=own)
        own.commit()
    [put] = sender.puts
    assert (put.engine, put.topics, put.answer, put.error) == (store, ["t"], sent, None)
    async with make_queue(url, outbox=store, hooks=hooks) as queue:
        assert await queue.relay(wait=False) == 2
        found = [dict(each.headers) for each in await queue.receive("t", limit=9)]
    assert found == [{"trace": "sender"}, {"mine": "1", "trace": "sender"}]


async def test_a_header_that_no_message_can_have_is_refused_before_the_commit(
    make_queue: Callable[..., Any], store: str, own: sqlite3.Connection, tmp_path: Path
) -> None:
    async with make_queue(f"memory://{tmp_path.name}", outbox=store, hooks=[Traced(7)]) as queue:
        with pytest.raises(BadOption, match=r"A hook has added headers that can't be sent.*'trace'"):
            await queue.send("t", 1, connection=own)
        own.commit()
        assert await queue.relay(wait=False) == 0


class Spoils(Hook):
    """Messages with one body. It can be mended."""

    bad: str | None = "bad"

    def before(self, call: Call) -> None:
        if call.verb == "put":
            for message in call.asked:
                if bytes(message.body) == f'"{self.bad}"'.encode():
                    message.headers["tenant"] = 7


async def test_what_a_hook_of_the_relay_spoils_stays_in_its_place_until_the_hook_is_mended(
    make_queue: Callable[..., Any], store: str, own: sqlite3.Connection, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    hook = Spoils()
    async with make_queue(f"memory://{tmp_path.name}", outbox=store, hooks=[hook]) as queue, AsyncQueue(store) as kept:
        await queue.relay(wait=False)
        hook.bad = None
        await queue.send("t", "bad", key="k", if_exists="replace", connection=own)
        await queue.send("t", "newest", key="k", if_exists="replace", connection=own)
        await queue.send("t", "other", key="other", connection=own)
        own.commit()
        hook.bad = "bad"
        assert await queue.relay(wait=False) == 1
        stats = await kept.stats(outbox.TOPIC)
        assert (stats.dead, stats.leased, stats.pending) == (0, 0, 2)
        assert "A hook has added headers that can't be sent: mend its before()." in caplog.text
        [got] = await queue.receive("t")
        assert got.body == "other"
        hook.bad = None
        assert await queue.relay(wait=False) == 2
        info = await queue.get(topic="t", key="k")
    assert info.body == "newest"


@pytest.mark.parametrize("key", ["k", None])
@pytest.mark.parametrize("how", ["sent", "about to send"])
async def test_a_cancel_whose_hook_spoils_the_message_is_not_sure_what_the_queue_has(
    make_queue: Callable[..., Any], store: str, own: sqlite3.Connection, tmp_path: Path, how: str, key: str | None
) -> None:
    """A relay of another program has the message, and has sent it or is about to."""
    url, hook = f"memory://{tmp_path.name}", Spoils()
    with Queue(url, outbox=store) as relay:
        async with make_queue(url, outbox=store, hooks=[hook]) as queue:
            hook.bad = None
            sent = await queue.send("t", "bad", key=key, connection=own)
            own.commit()
            go_on = die(relay, after_put=how == "sent")
            hook.bad = "bad"
            with pytest.raises(OutcomeUnknown, match=r"A hook has added headers"):
                await (queue.cancel(sent.id) if key is None else queue.cancel(topic="t", key=key))
            assert (await queue.stats(outbox.TOPIC)).pending == 0
            if how != "sent":
                go_on()
            assert relay.stats("t").ready == 1
            if key is not None:
                assert await queue.cancel(topic="t", key=key) is CancelResult.CANCELLED
