"""Which script holds up the Redis server longest: on queues of awkward shapes at full size, by the server's SLOWLOG.

For each step there are the slowest script, with its name, and all scripts together, with their number. A script that waits for
a core counts that, so the figures are true on a quiet machine only; how much others used of it stands at the end.
`BIDE_BENCH_SHAPES=keys,topics` picks shapes.
"""

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.costs import load, own
from benchmarks.measure import Figure, figure
from benchmarks.redis_meter import Meter
from bide.engines.redis.script import scripts
from tests.redis.keyspace import bench_at
from tests.redis.shapes import SHAPES, Shape
from tests.servers.redis import RedisServer

SHORT = 200  # µs: no script below it is told by its name
MANY = 1_000_000  # entries of the log
QUIET = 0.2  # cores that others may use


def run() -> list[Figure]:
    chosen = os.environ.get("BIDE_BENCH_SHAPES")
    _warn(os.getloadavg()[0], "in the last minute")
    lines: list[Figure] = []
    machine = Machine()
    for name in chosen.split(",") if chosen else SHAPES:
        with RedisServer(slowlog_log_slower_than=SHORT, slowlog_max_len=MANY) as server:
            meter = Meter(server)
            lines += asyncio.run(_went(meter, name, SHAPES[name]))
            machine.ours(meter.server())
    others = machine.others()
    _warn(others, "in the meantime")
    longest = max(each.high for each in lines if each.bar)
    return [
        *lines,
        figure("the slowest of all", "ms", [longest], "<= 10"),
        figure("used by others in the meantime", "cores", [others]),
        load(),
    ]


def _warn(cores: float, when: str) -> None:
    if cores > QUIET:
        print(
            f"The machine is loaded: others used {cores:.1f} cores {when}. Times are longer than on a quiet one.",
            file=sys.stderr,
        )


async def _went(meter: Meter, name: str, shape: Shape) -> list[Figure]:
    lines: list[Figure] = []
    client = meter.client
    for script in scripts().values():
        client.script_load(script.text)
    url = meter.url + ("?timeout=60&shards=64" if name == "64 shards" else "?timeout=60")
    async with bench_at(url, dead_max=MANY) as bench:
        seen_slowest(client)
        async for step in shape.steps(bench, shape.full):
            slowest, verb, count, together = seen_slowest(client)
            if count:
                lines.append(figure(f"{name}, {step}: {verb}", "ms", [slowest], "<= 10"))
                lines.append(figure(f"… {count:,} together", "ms", [together]))
    return lines


def seen_slowest(client: Any, short: int = SHORT) -> tuple[float, str, int, float]:
    """Of the slowest script since this was last asked, and of all: ms, name, number, ms."""
    names = {script.sha.encode(): name for name, script in scripts().items()}
    words = ((each["command"].split(b" ")[1:2], each["duration"]) for each in client.slowlog_get(MANY))
    found = [(took / 1_000, names[word[0]]) for word, took in words if word and word[0] in names]
    told = client.info("commandstats").get("cmdstat_evalsha", {"calls": 0, "usec": 0})
    client.slowlog_reset()
    client.config_resetstat()
    slowest, name = max(found, default=(short / 1_000, "less"))
    return slowest, name, told["calls"], told["usec"] / 1_000


class Machine:
    """How many cores others keep busy, where the system tells."""

    def __init__(self) -> None:
        self._begin, self._busy, self._ours = time.monotonic(), _busy(), -own()

    def ours(self, seconds: float) -> None:
        """Of CPU that a server of ours has used."""
        self._ours += seconds

    def others(self) -> float:
        used = _busy() - self._busy - self._ours - own()
        return max(0.0, used / (time.monotonic() - self._begin))


def _busy() -> float:
    """Seconds that all cores together have worked."""
    try:
        words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, *rest = map(int, words)
    return (user + nice + system + sum(rest[:3])) / os.sysconf("SC_CLK_TCK")
