"""What a server holds, seen from beside the engine: pictures of it, and the way back to them; and engines in either colour."""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import redis

from bide.engines.aio import AsyncEngine
from bide.engines.base import Claimed, NewMessage, Settings, Stored
from bide.engines.redis import source
from bide.engines.registry import Guarded
from bide.engines.sync import Engine
from bide.testing.contract import Recoloured
from bide.testing.contract.bench import START, Bench, ending

COLOURS = ("async", "sync")
READ: dict[bytes, Callable[[Any, bytes], Any]] = {
    b"hash": lambda to, key: to.hgetall(key),
    b"list": lambda to, key: to.lrange(key, 0, -1),
    b"zset": lambda to, key: to.zrange(key, 0, -1, withscores=True),
    b"set": lambda to, key: to.smembers(key),
    b"string": lambda to, key: to.get(key),
}


def shop(url: str, **settings: Any) -> Any:
    return source(Settings(url=url, namespace="shop", **settings))


def engine_of(url: str, colour: str = "async", **settings: Any) -> AsyncEngine:
    place = Guarded(shop(url, **settings))
    return place.aio() if colour == "async" else Recoloured(place.sync())


@asynccontextmanager
async def bench_at(url: str, colour: str = "async", now: int = START, **settings: Any) -> AsyncIterator[Bench]:
    """A bench of the namespace `shop`, whatever else is open there."""

    def place(**other: Any) -> AsyncEngine:
        return engine_of(url, colour, **(settings | other))

    bench = Bench(place(), place, now)
    await bench.engine.open()
    try:
        yield bench
    finally:
        await bench.close()


def sync_engine(url: str, **settings: Any) -> Engine:
    return shop(url, **settings).sync()  # type: ignore[no-any-return]


class Picture(NamedTuple):
    """All keys: what they hold, and what RESTORE needs to bring them back."""

    held: dict[bytes, tuple[bytes, Any]]
    dumps: dict[bytes, bytes]


def all_keys(client: Any, pattern: str = "*") -> list[bytes]:
    return client.keys(pattern)  # type: ignore[no-any-return]


def held(client: redis.Redis, pattern: str = "*") -> dict[bytes, tuple[bytes, Any]]:
    """What all keys hold, or those of a pattern, whatever form the server gives to it and whenever it ends."""
    names: list[bytes] = sorted(all_keys(client, pattern))
    with client.pipeline(transaction=False) as ask:
        for name in names:
            ask.type(name)
        kinds = ask.execute()
        for name, kind in zip(names, kinds, strict=True):
            READ[kind](ask, name)
        values = ask.execute()
    return dict(zip(names, zip(kinds, values, strict=True), strict=True))


def picture(client: redis.Redis) -> Picture:
    found = held(client)
    return Picture(found, {name: client.dump(name) or b"" for name in found})


def bring_back(client: redis.Redis, old: Picture) -> None:
    """As after a failover to a replica that had heard so much and no more."""
    with client.pipeline(transaction=True) as ask:
        ask.flushall()
        for name, dump in old.dumps.items():
            ask.restore(name, 0, dump)
        ask.execute()


def names(client: redis.Redis) -> set[str]:
    return {name.decode() for name in all_keys(client)}


def parts_of_expiries(client: redis.Redis, prefix: str) -> list[str]:
    return [each for each in names(client) if each.startswith(f"{prefix}exp:") and each != f"{prefix}exp:next"]


def note_as_before(client: redis.Redis, prefix: str) -> int:
    """Expiries are noted as the release before noted them, in one key; gives how many there are."""
    noted = parts_of_expiries(client, prefix)
    if noted:
        client.zunionstore(f"{prefix}exp", [f"{prefix}exp", *noted], aggregate="MIN")
        client.delete(f"{prefix}exp:next", *noted)
    return int(client.zcard(f"{prefix}exp"))


async def every(bench: Bench, topics: Sequence[str]) -> list[Stored]:
    return [each for topic in topics for each in await bench.stored(topic)]


async def counts_are_true(bench: Bench, topics: Sequence[str]) -> None:
    """The counts are those of a full scan, topic by topic."""
    for topic in topics:
        found = [each.state for each in await bench.stored(topic)]
        told = await bench.engine.stats(topic, now=bench.now)
        counted = (told.scheduled, told.ready, told.leased, told.dead)
        assert counted == tuple(found.count(state) for state in ("scheduled", "ready", "leased", "dead")), topic


async def take_all(bench: Bench, *topics: str, lease: int = 60_000) -> list[Claimed]:
    """All that is due, in claims of a thousand."""
    found: list[Claimed] = []
    while got := await bench.claim(*topics, limit=1_000, lease=lease):
        found += got
    return found


async def finish_all(bench: Bench, claimed: Sequence[Claimed]) -> None:
    for i in range(0, len(claimed), 1_000):
        some = claimed[i : i + 1_000]
        assert set(await bench.engine.settle([ending(each, "done") for each in some], now=bench.now)) == {"done"}


async def drain(bench: Bench, topics: Sequence[str]) -> set[str]:
    """Until nothing is left: leases run out, the dead live again, all is handed out and done. Gives what came by."""
    seen: set[str] = set()
    for _ in range(50):
        for topic in topics:
            await bench.engine.pause(topic, False)
            while (await bench.engine.requeue(topic, now=bench.now)).count:
                pass
        await bench.tend()
        got = await take_all(bench, *topics)
        seen |= {each.id for each in got}
        await finish_all(bench, got)
        left = await every(bench, topics)
        if not left:
            return seen
        bench.now = max(bench.now + 1, *(max(each.due, each.lease_until or 0) + 1 for each in left))
    raise AssertionError(f"what is left can't be drained: {left[:3]}")


def batch(topic: str, count: int, **options: Any) -> list[NewMessage]:
    return [NewMessage(topic, b"%d" % i, **options) for i in range(count)]


async def put_many(bench: Bench, topic: str, count: int, **options: Any) -> list[str]:
    """Ids, of batches of at most a thousand."""
    ids: list[str] = []
    for i in range(0, count, 1_000):
        ids += [each.id for each in await bench.put_all(*batch(topic, min(1_000, count - i), **options))]
    return ids
