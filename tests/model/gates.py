"""Gates, as simply as they can be said; and random histories that an engine plays beside it.

`python -m tests.model.gates sqlite:////tmp/gates.db --seed 7` plays one. The model keeps what happened and reckons from
that: who is in, who waits in which order, and every instant at which something began.
"""

import argparse
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from bide.engines.base import Settings
from bide.engines.gates import AGAIN_MS, TURN_MS, Called, Entered, Entry, Held, Spend, Spent
from bide.engines.registry import source
from bide.engines.sync import Engine
from tests.model.expected import agree, insist

NAMES = ("g", "h", "a longer name: ключ {1}")
PEOPLE = tuple("abcdefghij")
STEPS = (0, 0, 0, 1, 1, 7, 300, AGAIN_MS, 3_000, TURN_MS, 9_999, 10_000, 60_000)
RATES = ((1, 1_000), (3, 1_000), (3, 5_000), (250, 10_000), (7, 50))


class Inside(NamedTuple):
    token: str
    until: int


class Gate:
    def __init__(self) -> None:
        self.inside: dict[str, Inside] = {}
        self.line: list[tuple[str, int]] = []
        self.asks_by: dict[str, int] = {}  # of some in the line
        self.called: dict[str, tuple[int, int]] = {}  # until when the turn lasts, and when it is told again
        self.places = 1
        self.last_token = ""


class Model:
    def __init__(self) -> None:
        self.now = 4_000_000_000_000
        self.gates: dict[str, Gate] = {}
        self.begun: dict[str, list[int]] = {}  # granted instants
        self.kept: dict[tuple[str, str], int] = {}

    def gate(self, name: str) -> Gate:
        return self.gates.setdefault(name, Gate())

    def _over(self, gate: Gate) -> None:
        gate.inside = {name: place for name, place in gate.inside.items() if place.until > self.now}
        gate.called = {name: turn for name, turn in gate.called.items() if turn[0] > self.now}
        self._silent(gate)

    def _silent(self, gate: Gate) -> None:
        """Who had to ask again, and did not, is not in the line."""
        gate.line = [each for each in gate.line if gate.asks_by.get(each[0], self.now + 1) > self.now]
        gate.asks_by = {name: gate.asks_by[name] for name, _ in gate.line if name in gate.asks_by}

    def room(self, gate: Gate) -> int:
        return gate.places - len(gate.inside) - len(gate.called)

    def enter(self, entry: Entry, answer: Entered) -> None:
        gate = self.gate(entry.gate)
        self._over(gate)
        gate.places = entry.places
        waiting = [name for name, _ in gate.line]
        first = not waiting or waiting[0] == entry.waiter
        if entry.holder in gate.inside:
            agree(f"the token of {entry}", gate.inside[entry.holder].token, answer.token)
        elif entry.waiter in gate.called or (self.room(gate) > 0 and first):
            insist(answer.token is not None, f"{entry} was not let in")
            insist((answer.token or "") > gate.last_token, f"{entry} got the token {answer.token} after {gate.last_token}")
            gate.called.pop(entry.waiter or "", None)
            gate.line = [each for each in gate.line if each[0] != entry.waiter]
        else:
            if entry.waiter is not None and entry.waiter not in waiting:
                gate.line.append((entry.waiter, self.now))
            if entry.waiter is not None and entry.asks is not None:
                asks_by = gate.asks_by.get(entry.waiter, self.now)
                gate.asks_by[entry.waiter] = self.now + entry.asks if asks_by - self.now <= entry.asks * 2 // 3 else asks_by
            since = dict(gate.line).get(entry.waiter or "")
            ends = [place.until for place in gate.inside.values()] + [until for until, _ in gate.called.values()]
            free_in = min(ends) - self.now if ends and entry.is_told else None
            agree(f"the answer to {entry}", Entered(None, since, free_in), answer)
            return
        gate.inside[entry.holder] = Inside(answer.token or "", self.now + entry.lease)
        gate.last_token = max(gate.last_token, answer.token or "")

    def keep(self, held: Held, lease: int, answer: bool) -> None:
        """A place whose lease has ended may have been taken back or not, unless somebody needed it."""
        gate = self.gate(held.gate)
        place = gate.inside.get(held.holder)
        good = place is not None and place.token == held.token
        agree(f"the answer to keep {held}", good, answer)
        if place is not None and good:
            gate.inside[held.holder] = Inside(place.token, self.now + lease)

    def leave(self, held: Held, answer: bool) -> list[Called]:
        gate = self.gate(held.gate)
        self._silent(gate)
        place = gate.inside.get(held.holder)
        if held.token is None:
            good = held.holder in gate.called or held.holder in dict(gate.line)
            gate.called.pop(held.holder, None)
            gate.line = [each for each in gate.line if each[0] != held.holder]
        else:
            good = place is not None and place.token == held.token
            if good:
                del gate.inside[held.holder]
        agree(f"the answer to leave {held}", good, answer)
        return self.call(held.gate)

    def call(self, name: str) -> list[Called]:
        gate, called = self.gate(name), []
        while gate.line and self.room(gate) > 0:
            waiter, _ = gate.line.pop(0)
            gate.called[waiter] = (self.now + TURN_MS, self.now + AGAIN_MS)
            called.append(Called(name, waiter))
        return called

    def recall(self) -> list[Called]:
        called = []
        for name, gate in self.gates.items():
            self._over(gate)
            for waiter, (until, again) in gate.called.items():
                if again <= self.now:
                    gate.called[waiter] = (until, self.now + AGAIN_MS)
                    called.append(Called(name, waiter))
            called += self.call(name)
        return called

    def spend(self, spend: Spend, answer: Spent) -> None:
        """Of the times themselves it says only what must hold: never too many, and nobody is put off without need."""
        begun, key = self.begun.setdefault(spend.gate, []), (spend.gate, spend.holder or "")
        kept = self.kept.pop(key, None)
        if spend.holder is not None:
            agree(f"the number of instants for {spend}", 1, len(answer.at))
            if answer.at[0] > self.now:
                self.kept[key] = answer.at[0]
                room = sum(1 for at in begun if at > self.now - spend.window) < spend.count - spend.count // 100
                insist(kept is None or not room, f"{spend} has come for its instant {kept}, and may not begin")
                insist(kept is None or kept <= self.now or kept == answer.at[0], f"{spend} was told {kept}")
                return
        begun += answer.at
        insist(all(at == self.now for at in answer.at), f"{spend} begins at another time than now")
        if spend.holder is None:
            insist(len(answer.at) <= spend.want, f"{spend} got {len(answer.at)}")
            if len(answer.at) < spend.want:
                insist(answer.next_at > self.now, f"{spend} got too little, and is told to come at once")
        for place, at in enumerate(begun):
            before = begun[place - spend.count] if place >= spend.count else None
            insist(before is None or at - before >= spend.window, f"{spend}: more than {spend.count} began up to {at}")


class History:
    """Random calls, of two clients."""

    def __init__(self, engines: list[Engine], seed: int) -> None:
        self.engines = engines
        self.random = Random(seed)
        self.model = Model()
        self.known: list[Held] = []

    def play(self, steps: int) -> None:
        often, now_and_then = [self.enter, self.leave], [self.enter, self.keep, self.recall, self.spend]
        verbs: list[Callable[[], None]] = [*often, *often, *now_and_then]
        for _ in range(steps):
            self.model.now += self.random.choice(STEPS)
            self.random.choice(verbs)()
        self.end()

    @property
    def gates(self) -> "Engine":
        return self.random.choice(self.engines)

    def enter(self) -> None:
        some = [self._entry() for _ in range(self.random.choice([1, 1, 2, 5]))]
        for entry, entered in zip(some, self.gates.gates.enter(some, now=self.model.now), strict=True):
            self.model.enter(entry, entered)
            if entered.token is not None:
                self.known.append(Held(entry.gate, entry.holder, entered.token))

    def _entry(self) -> Entry:
        gate = self.random.choice(NAMES)
        waiter = self.random.choice(PEOPLE) if self.random.random() < 0.7 else None
        turns = list(self.model.gate(gate).called)
        if turns and self.random.random() < 0.5:
            waiter = self.random.choice(turns)
        holder = f"{waiter or self.random.choice(PEOPLE)} {self.random.randrange(6)}"
        lease, places = self.random.choice([1, 500, 10_000]), self.random.choice([1, 1, 1, 2, 3])
        return Entry(gate, holder, lease, places, waiter, self.random.choice([None, None, 2, 450, 3_000]))

    def _some_held(self) -> list[Held]:
        some = [self.random.choice(self.known[-12:]) for _ in range(self.random.choice([1, 1, 3])) if self.known]
        if self.random.random() < 0.2:
            some.append(Held(self.random.choice(NAMES), self.random.choice(PEOPLE), self.random.choice(["0", "no token"])))
        return some

    def keep(self) -> None:
        """Places whose lease has ended are left out: whether they were taken back is the engine's choice."""
        some = [each for each in self._some_held() if not self._ended(each)]
        if some:
            lease = self.random.choice([1, 700, 20_000])
            for held, answer in zip(some, self.gates.gates.keep(some, lease, now=self.model.now), strict=True):
                self.model.keep(held, lease, answer)

    def _ended(self, held: Held) -> bool:
        place = self.model.gate(held.gate).inside.get(held.holder)
        return place is not None and place.until <= self.model.now

    def leave(self) -> None:
        some = [each for each in self._some_held() if not self._ended(each)]
        if self.random.random() < 0.2:
            some.append(Held(self.random.choice(NAMES), self.random.choice(PEOPLE), None))
        if some:
            self._settle_calls()
            left = self.gates.gates.leave(some, now=self.model.now)
            called = [each for held, answer in zip(some, left.answers, strict=True) for each in self.model.leave(held, answer)]
            agree(f"called after {some}", called, left.called)

    def _settle_calls(self) -> None:
        """What is over is recalled first: a leave may, and need not, call for the places of others whose lease has ended."""
        self.recall()

    def recall(self) -> None:
        engine, found = self.gates, list[Called]()
        while True:
            did = engine.tend(self.random.choice([1, 2, 1_000]), now=self.model.now)
            found += did.called
            if not did.more:
                break
        agree("recalled", sorted(map(str, self.model.recall())), sorted(map(str, found)))

    def spend(self) -> None:
        """Some at one rate, either for themselves or for whoever comes."""
        rate = self.random.choice(RATES)
        people = PEOPLE[:4] if self.random.random() < 0.6 else None
        name = f"rate of {rate} for {'those who wait' if people else 'all'}"
        for _ in range(self.random.choice([1, 3, 12])):
            holder = None if people is None else self.random.choice(people)
            spend = Spend(name, *rate, 1 if holder else self.random.choice([1, 2, 100]), holder)
            [spent] = self.gates.gates.spend([spend], now=self.model.now)
            agree("the engine's time", self.model.now, spent.now)
            self.model.spend(spend, spent)

    def end(self) -> None:
        """After a while nothing is left."""
        for _ in range(10_000):
            did = self.gates.tend(now=self.model.now)
            if did.next_in is None and not did.more:
                return
            self.model.now += did.next_in or 0
        raise AssertionError("there is always something left to recall")


def check_gates(make: Callable[[], Engine], *, seed: int, steps: int = 600) -> None:
    engines = [make(), make()]
    for each in engines:
        each.open()
    try:
        History(engines, seed).play(steps)
    finally:
        for each in engines:
            each.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("url")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--steps", type=int, default=2_000)
    asked = parser.parse_args()
    place = source(Settings(url=asked.url))
    check_gates(place.sync, seed=asked.seed, steps=asked.steps)


if __name__ == "__main__":
    main()
