"""One round of one way: messages spread over time, many that are due at once, and many that wait."""

import random
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.lateness import part
from benchmarks.roads.places import Place, cpu_of, memory_of, place
from benchmarks.roads.programs import Failed, Programs, Record
from benchmarks.roads.ways import Way

SPREAD, RATE = 400, 100.0  # messages, and how many of them a second
DELAYS = range(1, 6)  # seconds; each message has one of them, at random
BURST, SHORTEST_LEAD = 1_000, 4.0  # messages that are due at one time, and seconds to send them before, if not more
HOUR = 3_600.0
QUIET = 6.0  # seconds, in which the server gives back what its connections took at their start
SETTLED = 2.0  # seconds: what has been sent has arrived where it waits
IDLE = 5.0  # seconds
TRIES = 3
PATIENCE = 20.0  # seconds after the last message is due; what is not handled by then does not count as handled

Figures = Mapping[str, float]


def one_round(way: Way) -> Figures:
    """All figures of a way. What waits has a server and processes of its own: what is left of other work takes memory, too."""
    with _started(way) as (programs, where):
        waiting = _waiting(programs, where, way.waiting)
    with _started(way) as (programs, _):
        lead = max(SHORTEST_LEAD, 2 * BURST / waiting["sent a second"])
        return {**waiting, **_spread(programs), **_burst(programs, lead)}


@contextmanager
def _started(way: Way) -> Iterator[tuple[Programs, Place]]:
    with TemporaryDirectory() as folder, place(way.server) as where, Programs(way, where.url, Path(folder)) as programs:
        programs.warm_up()
        yield programs, where


def _spread(programs: Programs) -> Figures:
    chance = random.Random(1)
    delays = [float(chance.choice(DELAYS)) for _ in range(SPREAD)]
    programs.send("spread", delays, rate=RATE)
    found = programs.handled("spread", SPREAD, time.time() + max(delays) + PATIENCE)
    late = sorted(1000 * (each.at - each.due) for each in found)
    if not late:
        raise Failed("it handled none of the messages that were spread")
    missing = SPREAD - len({each.number for each in found})
    return {"p50 ms": part(late, 0.5), "p99 ms": part(late, 0.99), "earliest ms": late[0], "not handled": missing}


def _burst(programs: Programs, lead: float) -> Figures:
    for number in range(TRIES):
        work, at = f"burst{number}", time.time() + lead
        took = programs.send(work, [0.0] * BURST, at=at)
        found = programs.handled(work, BURST, at + 3 * PATIENCE)
        if took < lead:
            return {"handled a second": _pace(found), "burst not handled": BURST - len({each.number for each in found})}
        lead = 2 * took  # some were due before all were sent
    raise Failed(f"it took {took:.0f} s to send {BURST:,} messages, and longer each time")


def _pace(found: list[Record]) -> float:
    """From the first to the last one."""
    times = [each.at for each in found]
    return (len(times) - 1) / (max(times) - min(times))


def _waiting(programs: Programs, where: Place, many: int) -> Figures:
    time.sleep(QUIET)
    stored, used = where.bytes(), memory_of(programs.pids())
    took = programs.send("wait", [HOUR] * many)
    time.sleep(SETTLED)
    programs.settle()
    commands, worked, theirs, begin = where.commands(), cpu_of(programs.pids()), where.cpu(), time.time()
    time.sleep(IDLE)
    seconds, after = time.time() - begin, where.commands()
    programs.check()
    figures = {
        "sent a second": many / took,
        "CPU of the consumer, %": 100 * (cpu_of(programs.pids()) - worked) / seconds,
        "CPU of the server, %": 100 * (where.cpu() - theirs) / seconds,
        "bytes stored": (where.bytes() - stored) / many,
        "bytes in the consumer": (memory_of(programs.pids()) - used) / many,
    }
    if commands is not None and after is not None:
        figures["commands a second"] = max(0.0, after - commands - 1) / seconds  # one is our own look
    return figures
