"""Calls that are cut short at any place: by a cancellation, by a signal handler, by a failed login, by a garbled answer.

The next call must not get the answer of the one before, nor a connection that is not logged in and in its database.
"""

import asyncio
import contextlib
import gc
import os
import sys
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import redis
import redis.asyncio as aioredis

from bide import AsyncQueue, ConfigError, OutcomeUnknown, Queue
from bide.engines.aio import AsyncEngine
from bide.engines.base import End, Hold, Move, NewMessage, Ref, Settings
from bide.engines.redis.sync import connections
from bide.engines.registry import source
from bide.engines.sync import Engine
from bide.types import CancelResult
from tests.redis.proxy import proxied
from tests.servers.certificates import make_certificates
from tests.servers.fixtures import NewRedis
from tests.servers.redis import RedisServer

LONG = os.environ.get("BIDE_LONG")
HOUR = 3_600_000
PATIENCE = 10.0  # seconds; more than any of these calls takes
TURNS = 60  # of the event loop, more than any of these calls takes
WAKES = ("list", "expiry", "poll")
GARBAGE = (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", b"+OK\r\n", b":5\r\n", b"*1\r\n+PONG\r\n", b"*-1\r\n", b"$-7\r\n")


def verbs_of(engine: Any, held: End) -> dict[str, Callable[[], Any]]:
    """Every verb, as calls that can be made again and again, of an engine for threads or for event loops."""
    many = [NewMessage("many", b"x", delay=HOUR, key=f"k{i}") for i in range(3)]
    return {
        "put": lambda: engine.put([NewMessage("put", b"x", delay=HOUR)]),
        "put_many": lambda: engine.put(many),
        "claim": lambda: engine.claim(["none"], 5, 100),
        "settle": lambda: engine.settle([held]),
        "extend": lambda: engine.extend([Hold(held.topic, held.id, held.token)], HOUR),
        "cancel": lambda: engine.cancel([Ref(topic="put", key="none")]),
        "reschedule": lambda: engine.reschedule([Move(Ref(topic="put", key="none"), HOUR, None)]),
        "tend": engine.tend,
        "get": lambda: engine.get([Ref(topic="many", key="k0")]),
        "scan": lambda: engine.scan("many", None, 2),
        "stats": engine.stats,
        "requeue": lambda: engine.requeue("none"),
        "purge": lambda: engine.purge("none", "dead"),
        "pause": lambda: engine.pause("none", False),
        "wait": lambda: engine.wait(["none"], 0.02),
    }


def held_of(claimed: Any) -> End:
    [message] = claimed.messages
    return End(message.topic, message.id, message.token, "done")


# Event loops


async def turned_and_cancelled(call: Awaitable[object], turns: int) -> bool:
    """Cancel a call after so many turns of the loop; False when it had ended. It must end as a cancelled one does."""
    task = asyncio.ensure_future(call)
    for _ in range(turns):
        await asyncio.sleep(0)
    if task.done():
        task.result()
        return False
    task.cancel()
    await asyncio.wait({task}, timeout=PATIENCE)
    assert task.cancelled(), f"cancelled at turn {turns}, it went on: {task}"
    return True


async def answers_are_its_own(engine: AsyncEngine, body: bytes) -> None:
    [sent] = await engine.put([NewMessage("check", body, delay=HOUR)])
    [found] = await engine.get([Ref(id=sent.id)])
    assert found is not None
    assert (found.topic, found.body) == ("check", body)
    assert (await engine.stats("check")).scheduled == 1
    assert await engine.cancel([Ref(id=sent.id)]) == [CancelResult.CANCELLED]


@pytest.mark.parametrize("wake", WAKES)
async def test_a_cancelled_call_ends_and_the_next_one_gets_its_own_answer(wake: str, new_redis: NewRedis) -> None:
    server = new_redis(notify_keyspace_events="Ex")
    url = f"{server.url}?wake={wake}"
    engine = source(Settings(url=url)).aio()
    await engine.open()
    await engine.put([NewMessage("held", b"x")])
    verbs = verbs_of(engine, held_of(await engine.claim(["held"], 1, HOUR)))

    async def first_use() -> None:
        other = source(Settings(url=url)).aio()
        try:
            await other.open()
        finally:
            await other.close()

    for name, call in {**verbs, "first use": first_use}.items():
        turns = 0
        while await turned_and_cancelled(call(), turns):
            await answers_are_its_own(engine, f"{name} {turns}".encode())
            turns += 1
            if turns > TURNS:  # a sleeper, which ends by time
                break
        assert turns > 2, name
    await engine.close()


async def test_a_cancellation_counts_also_when_sending_fails_in_its_moment(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(self: object, command: object) -> None:
        raise ConnectionResetError("reset by peer")

    engine = source(Settings(url=redis_url)).aio()
    await engine.open()
    for call in (lambda: engine.wait(["none"], PATIENCE), engine.stats):
        for turns in range(12):
            await engine.wait(["none"], 0.01)
            with monkeypatch.context() as patched:
                patched.setattr("bide.engines.redis.server.FULL", 0)  # or a sender does not wait, and has no such moment
                patched.setattr(aioredis.connection.AbstractConnection, "_send_packed_command", broken)
                assert await turned_and_cancelled(call(), turns)
    await engine.close()


# Threads


class Alarm(Exception):
    """What a signal handler raises."""


class Interruption:
    """Calls a handler once, before the line `number` of those that an engine and redis-py run."""

    FILES = ("/bide/engines/redis/", "/redis/connection.py", "/redis/_parsers/", "/threading.py")

    def __init__(self, number: int, handler: Callable[[], object]) -> None:
        self.left: int = number
        self.came: bool = False
        self._handler = handler

    def __enter__(self) -> "Interruption":
        self._before = sys.gettrace()
        sys.settrace(self._called)
        return self

    def __exit__(self, *_: object) -> None:
        sys.settrace(self._before)

    def _called(self, frame: FrameType, event: str, arg: object) -> Any:
        if not any(part in frame.f_code.co_filename for part in self.FILES):
            return None
        above: FrameType | None = frame
        while above is not None:
            if above.f_code.co_name == "__del__":  # what is raised there is lost by Python
                return None
            above = above.f_back
        return self._line

    def _line(self, frame: FrameType, event: str, arg: object) -> Any:
        if event == "line" and not self.came:
            self.left -= 1
            if self.left < 0:
                self.came = True
                self._handler()
        return self._line


def interrupted(call: Callable[[], object], number: int) -> bool:
    """Make a call in a thread of its own that is interrupted before this line; False when it ends before."""

    def ring() -> None:
        raise Alarm

    def live() -> bool:
        with contextlib.suppress(Alarm), Interruption(number, ring) as interruption:
            call()
        return interruption.came

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(live).result(PATIENCE)


def answers_are_its_own_in_threads(engine: Engine, body: bytes) -> None:
    [sent] = engine.put([NewMessage("check", body, delay=HOUR)])
    [found] = engine.get([Ref(id=sent.id)])
    assert found is not None
    assert (found.topic, found.body) == ("check", body)
    assert engine.cancel([Ref(id=sent.id)]) == [CancelResult.CANCELLED]


@pytest.mark.always
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # redis-py is interrupted too, before it has stored its socket
@pytest.mark.timeout(120)
@pytest.mark.parametrize("database", [0, 3])
def test_a_handler_that_raises_at_any_line_leaves_the_next_call_its_own_answer(
    database: int, redis_server: RedisServer, redis_url: str
) -> None:
    url = redis_url.replace("/0", f"/{database}")
    engine = source(Settings(url=url)).sync()
    engine.open()
    engine.put([NewMessage("held", b"x")])
    verbs = verbs_of(engine, held_of(engine.claim(["held"], 1, HOUR)))
    for name, call in verbs.items():
        number, step = 0, 1 if LONG or name == "put" else 5
        while interrupted(call, number):
            answers_are_its_own_in_threads(engine, f"{name} {number}".encode())
            number += step
        assert number > 10, name
    engine.close()
    gc.collect()
    with redis_server.client() as client:
        assert database == 0 or client.dbsize() == 0
        end = time.monotonic() + PATIENCE
        while any(each["name"] == "bide" for each in client.client_list()):
            assert time.monotonic() < end, "a connection is left open"


def test_a_handler_that_sends_at_any_line_of_a_send_is_answered(redis_url: str) -> None:
    with Queue(redis_url) as queue:
        queue.send("t", "first", delay="1h")
        inner: list[Any] = []
        outer: list[Any] = []
        while True:
            with Interruption(len(outer), lambda: inner.append(queue.send("handler", len(inner), delay="1h"))) as interruption:
                outer.append(queue.send("t", len(outer), delay="1h"))
            if not interruption.came:
                break
        assert len(inner) == len(outer) - 1 > 10
        for sent, topic in ((inner, "handler"), (outer, "t")):
            found = [queue.get(each.id) for each in sent]
            assert [(each.topic, each.body) for each in found if each is not None] == [(topic, i) for i in range(len(sent))]


def test_threads_share_a_limited_number_of_connections(redis_server: RedisServer, redis_url: str) -> None:
    many = connections.MOST + 8
    begin = threading.Barrier(many)
    with Queue(redis_url) as queue, ThreadPoolExecutor(many) as threads, redis_server.client() as client:
        queue.send("t", "first", delay="1h")

        def send(number: int) -> str:
            begin.wait(PATIENCE)
            return queue.send("t", number, delay="1h").id

        sent = list(threads.map(send, range(many)))
        assert [info.body for info in map(queue.get, sent) if info is not None] == list(range(many))
        assert sum(each["name"] == "bide" for each in client.client_list()) <= connections.MOST


# Logins


class Provider(redis.CredentialProvider):
    """A token service that is away for a moment, or slow."""

    def __init__(self) -> None:
        self.failures = 0
        self.slow: asyncio.Event | None = None
        self.asked = asyncio.Event()

    def get_credentials(self) -> tuple[str, str]:
        if self.failures:
            self.failures -= 1
            raise RuntimeError("the token service is away")
        return "app", "pw"

    async def get_credentials_async(self) -> tuple[str, str]:
        self.asked.set()
        if self.slow is not None:
            await self.slow.wait()
        return self.get_credentials()


@pytest.fixture
def strict(new_redis: NewRedis) -> RedisServer:
    """A server that also serves those who did not log in."""
    return new_redis(user=["default on nopass ~* &* +@all", "app on >pw ~* &* +@all"])


def cut(server: RedisServer) -> None:
    with server.client() as client:
        client.client_kill_filter(_type="normal", skipme=True)


def bodies(server: RedisServer, database: int) -> list[Any]:
    with Queue(f"redis://app:pw@127.0.0.1:{server.port}/{database}") as queue:
        return [each.body for each in queue.messages("t")]


def test_after_a_login_that_failed_messages_go_to_the_right_database(strict: RedisServer) -> None:
    provider = Provider()
    client = redis.Redis(host="127.0.0.1", port=strict.port, db=3, credential_provider=provider)
    with Queue("redis://", client=client) as queue:
        queue.send("t", "before", delay="1h")
        cut(strict)
        provider.failures = 1
        with pytest.raises(RuntimeError, match="away"):
            queue.stats("t")
        queue.send("t", "after", delay="1h")
    assert bodies(strict, 3) == ["before", "after"]
    assert bodies(strict, 0) == []


@pytest.mark.parametrize("how", ["fails", "cancelled"])
async def test_after_a_login_that_was_cut_short_messages_go_to_the_right_database(how: str, strict: RedisServer) -> None:
    provider = Provider()
    client = aioredis.Redis(host="127.0.0.1", port=strict.port, db=3, credential_provider=provider)
    async with AsyncQueue("redis://", client=client) as queue:
        await queue.send("t", "before", delay="1h")
        await asyncio.to_thread(cut, strict)
        if how == "fails":
            provider.failures = 1
            with pytest.raises(RuntimeError, match="away"):
                await queue.stats("t")
        else:
            provider.slow = asyncio.Event()
            provider.asked.clear()
            looking = asyncio.ensure_future(queue.stats("t"))
            await asyncio.wait_for(provider.asked.wait(), PATIENCE)
            looking.cancel()
            await asyncio.wait({looking})
            provider.slow = None
        await queue.send("t", "after", delay="1h")
    assert await asyncio.to_thread(bodies, strict, 3) == ["before", "after"]
    assert await asyncio.to_thread(bodies, strict, 0) == []


@pytest.mark.parametrize("place", ["tcp", "unix"])
async def test_a_wrong_password_is_a_matter_of_configuration_wherever_the_server_is(place: str, new_redis: NewRedis) -> None:
    server = new_redis(requirepass="right")
    url = f"unix://:wrong@{server.socket_path}" if place == "unix" else f"redis://:wrong@127.0.0.1:{server.port}/0"
    with pytest.raises(ConfigError, match="refused the user or the password"):
        await AsyncQueue(url).send("t", 1)
    with pytest.raises(ConfigError, match="refused the user or the password"):
        await asyncio.to_thread(Queue(url).send, "t", 1)


@pytest.mark.parametrize("tls", [False, True])
async def test_a_close_is_not_kept_by_a_server_that_is_frozen(tls: bool, new_redis: NewRedis, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    server = new_redis(tls=certificates)
    place = f"{server.tls_url}?ca={certificates.authority}&" if tls else f"{server.url}?"
    queue = AsyncQueue(f"{place}timeout=1&connect_timeout=1")
    await queue.send("t", 1)
    server.freeze()
    await queue.close()
    server.thaw()


async def test_a_send_whose_answer_was_lost_and_whose_password_is_refused_then_may_have_happened(new_redis: NewRedis) -> None:
    server = new_redis(requirepass="right")
    async with proxied(server.port) as proxy, AsyncQueue(f"redis://:right@127.0.0.1:{proxy.port}/0?timeout=2") as queue:
        await queue.send("t", 0, delay="1h")
        with server.client() as client:
            client.config_set("requirepass", "another")
        proxy.once = "lose answer"
        with pytest.raises(OutcomeUnknown, match="may or may not have happened"):
            await queue.send("t", 1, delay="1h")
        with pytest.raises(ConfigError, match="refused the user or the password"):
            await queue.send("t", 2, delay="1h")
        with server.client(password="another") as client:
            client.config_set("requirepass", "right")
        assert [each.body for each in await queue.messages("t")] == [0, 1]


# Answers


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_garbled_answer_is_a_lost_one(garbage: bytes, redis_server: RedisServer, redis_url: str) -> None:
    async with proxied(redis_server.port) as proxy, AsyncQueue(proxy.patient_url) as queue:
        await queue.send("t", 0, delay="1h")
        proxy.once = garbage
        await queue.send("t", 1, delay="1h")
        assert [each.body for each in await queue.messages("t")] == [0, 1]


@pytest.mark.parametrize("garbage", GARBAGE)
async def test_a_garbled_answer_is_a_lost_one_in_threads(garbage: bytes, redis_server: RedisServer, redis_url: str) -> None:
    def live(url: str) -> None:
        with Queue(url) as queue:
            queue.send("t", 0, delay="1h")
            proxy.once = garbage
            queue.send("t", 1, delay="1h")
            assert [each.body for each in queue.messages("t")] == [0, 1]

    async with proxied(redis_server.port) as proxy:
        await asyncio.to_thread(live, proxy.patient_url)
