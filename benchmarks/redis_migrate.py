"""How long the largest keys of a queue of ten million hold a node of a Cluster when they move: MIGRATE blocks both nodes.

The queue is the worst for that: each message has an expiry and a key, and was rescheduled; one in 100 was sent with an
operation, one in 100 was cancelled, one in 100 is leased alone, and one in 100 is dead. So many are really sent as
`BIDE_BENCH_PENDING` says, over a part of a day: as dense as ten million over a day, since what is dense lies in shorter
time windows. Then each key gets more elements of the same form, as many as ten million would have made.

The largest key of each kind is moved there and back. Both nodes work by turns, and the one that gives the key is held all the
time. What counts is their CPU, which the noise of a machine moves less than the time by the clock.
"""

import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, cast

import msgspec
import redis

from benchmarks.costs import HOUR, body, load
from benchmarks.measure import Figure, figure
from benchmarks.redis_huge import step
from benchmarks.redis_meter import PENDING
from bide.engines.base import Claimed, End, Move, NewMessage, Ref, Settings
from bide.engines.registry import source
from bide.engines.sync import Engine
from tests.servers.redis import RedisServer
from tests.servers.server import HOST

QUEUE = 10_000_000  # messages
SENT = min(PENDING, QUEUE)
PRODUCERS = 2
GROUP = 250  # messages of one call
SHARE = 100  # one message in so many
MOVES = 4  # of each key: there, back, there, back
BODY = msgspec.json.encode(body())
DAY = 24 * HOUR * 1_000  # ms
SPAN = DAY * SENT // QUEUE  # ms in which the messages are due
LEASE = 7 * DAY
PATIENCE = 600_000  # ms for one key
CONSTANT = 64  # elements: there are many keys that hold so many at most; keys with fewer are left out
SAMPLE, COPIES = 1_000, 100  # elements that are copied, and how often by one script
SIZES = {b"hash": "HLEN", b"zset": "ZCARD", b"list": "LLEN", b"string": "STRLEN"}
GROW = """
local command, first, beyond, pairs_ = ARGV[1], tonumber(ARGV[2]), tonumber(ARGV[3]), {unpack(ARGV, 4)}
local zset = command == 'ZADD'
for copy = first, beyond - 1 do
  local head, new = struct.pack('>I4', copy), {}
  for i = 1, #pairs_, 2 do
    new[i] = zset and string.format('%d', pairs_[i] + copy) or head .. string.sub(pairs_[i], 5)
    new[i + 1] = zset and head .. string.sub(pairs_[i + 1], 5) or pairs_[i + 1]
  end
  redis.call(command, KEYS[1], unpack(new))
end
"""


class Key(NamedTuple):
    name: bytes
    type: bytes
    size: int  # its elements; bytes of a string


def run() -> list[Figure]:
    with RedisServer() as one, RedisServer() as other:
        _fill(one.url)
        lines = []
        with one.client(socket_timeout=None) as client:
            for kind, key in sorted(_largest(client).items()):
                with step(f"{kind} grows and moves"):
                    lines += _moved(kind, _grown(client, key), one, other)
                client.unlink(key.name)
        return [*lines, load()]


def _largest(client: redis.Redis) -> dict[str, Key]:
    """Of each kind of key, but for those that have a few elements in any queue."""
    found: dict[str, Key] = {}
    for names in _parts(client):
        types = _asked(client, [("TYPE", name) for name in names])
        sizes = _asked(client, [(SIZES[type], name) for name, type in zip(names, types, strict=True)])
        for each in map(Key._make, zip(names, types, sizes, strict=True)):
            kind = _kind_of(each.name.decode())
            found[kind] = max(found.get(kind, each), each, key=lambda key: key.size)
    return {kind: key for kind, key in found.items() if key.size >= CONSTANT}


def _parts(client: redis.Redis) -> Iterator[list[bytes]]:
    cursor: Any = None
    while cursor != 0:
        cursor, names = client.scan(cursor or 0, count=1_000)
        yield cast(list[bytes], names)


def _asked(client: redis.Redis, commands: list[tuple[str, bytes]]) -> list[Any]:
    pipe: Any = client.pipeline(transaction=False)
    pipe.response_callbacks = {}
    for command in commands:
        pipe.execute_command(*command)
    found: list[Any] = pipe.execute()
    return found


def _kind_of(name: str) -> str:
    """Of `{bide:0}:1:bB6a1:3f` it is `1:b`."""
    name = name.partition("}:")[2]
    return re.sub(r"^(lanes|ops|w|exp):.*$|^(\w+:)([bkm])\w*(:\w+)?$|^(\w+:)(o)\w$", r"\1\2\3\5\6", name)


def _grown(client: redis.Redis, key: Key) -> Key:
    """With as many elements as it would have of the whole queue."""
    missing = key.size * QUEUE // SENT - key.size
    if key.size <= CONSTANT or missing <= 0:
        return key
    if key.type == b"zset":
        found: Any = client.zrange(key.name, 0, SAMPLE - 1, withscores=True)
        command, flat = "ZADD", [each for member, score in found for each in (f"{score:.0f}", member)]
    else:
        found = client.hscan(key.name, count=SAMPLE)[1]
        command, flat = "HSET", [each for pair in list(found.items())[:SAMPLE] for each in pair]
    copies = missing // (len(flat) // 2)
    for first in range(0, copies, COPIES):
        client.eval(GROW, 1, key.name, command, first, min(first + COPIES, copies), *flat)
    return key._replace(size=_asked(client, [(SIZES[key.type], key.name)])[0])


def _moved(kind: str, key: Key, one: RedisServer, other: RedisServer) -> list[Figure]:
    """To the other server and back."""
    held, gone = [], []
    with one.client(socket_timeout=None) as here, other.client(socket_timeout=None) as there:
        megabytes = (here.memory_usage(key.name) or 0) / 1e6
        places = [(here, there, other.port), (there, here, one.port)]
        for source_, target, port in places * (MOVES // 2):
            worked, began = _worked(source_) + _worked(target), time.perf_counter()
            assert source_.migrate(HOST, port, key.name, 0, PATIENCE) == b"OK"
            gone.append(1e3 * (time.perf_counter() - began))
            held.append(1e3 * (_worked(source_) + _worked(target) - worked))
    name = f"{kind} {key.type.decode()} of {key.size:,}, {megabytes:,.1f} MB"
    return [figure(f"{name}, held", "ms", held, "<= 100"), figure("… by the clock", "ms", gone)]


def _worked(client: redis.Redis) -> float:
    """Seconds of CPU of the thread that runs commands."""
    used: dict[str, Any] = client.info("cpu")
    return float(used["used_cpu_user_main_thread"]) + float(used["used_cpu_sys_main_thread"])


def _fill(url: str) -> None:
    now = time.time_ns() // 1_000_000
    with step(f"{SENT:,} messages are sent and rescheduled"):
        command = [sys.executable, "-m", "benchmarks.redis_migrate", url, str(now), str(SENT // PRODUCERS)]
        producers = [subprocess.Popen([*command, str(number)]) for number in range(PRODUCERS)]
        assert [each.wait() for each in producers] == [0] * PRODUCERS
    with step("some are claimed, and some buried"):
        engine = opened(url)
        later = now + HOUR * 1_000 + 4 * SPAN // SHARE  # about 4 in 100 are due, and the other time windows not looked into
        for _ in range(SENT // SHARE):
            _claim(engine, 1, later)
        for _ in range(SENT // SHARE // GROUP):
            ends = [End(each.topic, each.id, each.token, "dead", 0, "it broke") for each in _claim(engine, GROUP, later)]
            engine.settle(ends, now=later)
        engine.close()


def _produce(url: str, now: int, count: int, number: int) -> None:
    chance, engine = random.Random(number), opened(url)
    for first in range(0, count, GROUP):
        names = [f"{number}:{each}" for each in range(first, min(first + GROUP, count))]
        sent = [each.id for each in engine.put([_message(name, chance) for name in names], now=now)]
        engine.reschedule([Move(Ref(id=each), _delay(chance)) for each in sent], now=now)
        engine.cancel([Ref(id=each) for each in sent if not chance.randrange(SHARE)], now=now)
    engine.close()


def _message(name: str, chance: random.Random) -> NewMessage:
    operation = None if chance.randrange(SHARE) else name
    return NewMessage("t", BODY, _delay(chance), key=f"order:{name}", expires_in=2 * DAY, operation=operation)


def _delay(chance: random.Random) -> int:
    """In the stretch that begins in an hour."""
    return HOUR * 1_000 + chance.randrange(SPAN)


def _claim(engine: Engine, count: int, now: int) -> Sequence[Claimed]:
    """A claim may stop before its limit, at its own bounds."""
    while not (claim := engine.claim(["t"], count, LEASE, now=now)).messages:
        assert claim.more, "too few messages are due"
    return claim.messages


def opened(url: str) -> Engine:
    engine = source(Settings(url=url)).sync()
    engine.open()
    return engine


if __name__ == "__main__":
    _produce(sys.argv[1], *map(int, sys.argv[2:]))
