"""Several actors enter and leave a few gates as fast as they can; each looks whether somebody is in who should not be.

`python -m tests.contract.crowd_at_gates URL FOLDER NAME COLOUR ROUNDS` runs some of them; the folder tells who is in, for all
processes. It prints how often somebody was let in.
"""

import asyncio
import sys
from pathlib import Path
from random import Random

from bide.engines.aio import AsyncEngine
from bide.engines.base import Settings
from bide.engines.gates import Entry, Held
from bide.engines.registry import source
from bide.testing.contract.suite import Recoloured

GATES, ACTORS, LEASE = 20, 4, 600_000


def width(gate: str) -> int:
    return 3 if gate.endswith("3") else 1


class Doorman:
    """Notes who is in, in files: a gate's last token, and one file for each who is in."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def comes(self, held: Held) -> None:
        inside = self._folder / held.gate
        inside.mkdir(exist_ok=True)
        (inside / held.holder).touch(exist_ok=False)
        found = [each.name for each in inside.iterdir()]
        assert len(found) <= width(held.gate), f"in {held.gate} are {found}"
        if width(held.gate) == 1:
            last = self._folder / f"{held.gate}.token"
            before = last.read_text() if last.exists() else ""
            assert before < str(held.token), f"{held.gate} gave {held.token} after {before}"
            last.write_text(str(held.token))

    def goes(self, held: Held) -> None:
        (self._folder / held.gate / held.holder).unlink()


async def act(engine: AsyncEngine, folder: Path, name: str, rounds: int) -> int:
    doorman, random, times = Doorman(folder), Random(name), 0
    for _ in range(rounds):
        gates = [f"g{number}" for number in random.sample(range(GATES), random.choice([1, 1, 3, 6]))]
        waiter = random.choice([name, None])
        entries = [Entry(gate, name, LEASE, width(gate), waiter) for gate in gates]
        inside: dict[str, Held] = {}
        for _ in range(random.choice([1, 2])):
            entered = await engine.gates.enter(entries)
            new = [Held(gate, name, each.token) for gate, each in zip(gates, entered, strict=True) if each.token]
            for held in new:
                if held.gate not in inside:
                    doorman.comes(held)
                assert inside.setdefault(held.gate, held) == held
        held_now = list(inside.values())
        assert await engine.gates.keep(held_now, LEASE) == [True] * len(held_now)
        for held in held_now:
            doorman.goes(held)
        waiting = [Held(gate, name, None) for gate in gates if gate not in inside and waiter]
        leaving = random.sample(held_now + waiting, len(held_now) + len(waiting))
        left = await engine.gates.leave(leaving)
        assert left.answers == [True] * len(leaving), (leaving, left)
        times += len(held_now)
        if random.random() < 0.2:
            await engine.tend(random.choice([1, 1_000]))
    return times


async def crowd(url: str, folder: Path, name: str, colour: str, rounds: int) -> int:
    place = source(Settings(url=url))
    engine: AsyncEngine = place.aio() if colour == "async" else Recoloured(place.sync())
    await engine.open()
    try:
        return sum(await asyncio.gather(*(act(engine, folder, f"{name}{n}", rounds) for n in range(ACTORS))))
    finally:
        await engine.close()


if __name__ == "__main__":
    url, folder, name, colour, rounds = sys.argv[1:]
    print(asyncio.run(crowd(url, Path(folder), name, colour, int(rounds))))
