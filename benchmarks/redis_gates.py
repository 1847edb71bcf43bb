"""`python -m benchmarks.redis_gates`: how long the server is at work for each step of locks and limits, in microseconds."""

import statistics

import redis

from benchmarks.counts import gates
from bide.engines.base import Settings
from bide.engines.registry import source
from bide.engines.sync import Engine
from tests.servers.redis import RedisServer

ROUNDS = 15


def main() -> None:
    """The rounds take turns, so that whoever else uses the machine slows down all steps alike."""
    found: dict[str, list[float]] = {}
    with RedisServer() as server:
        client = server.client()
        engine = source(Settings(url=f"{server.url}?timeout=60")).sync()
        engine.open()
        for _ in range(ROUNDS):
            _round(client, engine, found)
            client.flushall()
        engine.close()
    print(f"{'':<48} {'median':>8} {'least':>8} {'most':>8}   µs of the server, of {ROUNDS} rounds")
    for name, times in found.items():
        print(f"{name:<48} {statistics.median(times):>8.1f} {min(times):>8.1f} {max(times):>8.1f}")


def _round(client: redis.Redis, engine: Engine, found: dict[str, list[float]]) -> None:
    for name, many, act in gates.steps(engine):
        client.config_resetstat()
        act()
        found.setdefault(name, []).append(_at_work(client) / many)


def _at_work(client: redis.Redis) -> float:
    told = client.info("commandstats")
    return sum(float(told[name]["usec"]) for name in ("cmdstat_evalsha", "cmdstat_eval") if name in told)


if __name__ == "__main__":
    main()
