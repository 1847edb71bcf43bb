"""Kept results, as simply as they can be said; and random histories that an engine plays beside it.

`python -m tests.model.results sqlite:////tmp/results.db --seed 7` plays one. The model keeps what was told, and
reckons from that: what is known of which message until when, and what has not arrived of all that a message waits for.
"""

import argparse
from collections.abc import Callable
from random import Random

from bide.engines.base import NewMessage, Settings
from bide.engines.registry import source
from bide.engines.results import OPEN, Arrival, Dependent, Expected, Follow, Kept, Result
from bide.engines.sync import Engine
from tests.model.expected import agree, insist

STEPS = (0, 0, 0, 1, 7, 300, 999, 1_000, 5_000, 60_000)
LASTS = (1, 500, 1_000, 10_000, 100_000)
TOKENS = ("", "0001", "0002", "0010")
VALUES = (None, b"", b"7", b"d", b"o", bytes(range(256)))


class Model:
    def __init__(self) -> None:
        self.now = 4_000_000_000_000
        self.known: dict[str, tuple[Result, int]] = {}
        self.tokens: dict[str, str] = {}  # of the deliveries that returned them
        self.left: dict[str, tuple[set[str], int]] = {}  # of what waits: what has not arrived, and until when it waits
        self.followers: dict[str, dict[str, int]] = {}

    def read(self, id: str) -> Result | None:
        result, until = self.known.get(id, (None, 0))
        return result if until > self.now else None

    def expect(self, expected: Expected) -> None:
        if self.read(expected.id) is None:
            self.known[expected.id] = OPEN, expected.until

    def fulfil(self, kept: Kept) -> None:
        found = self.read(kept.id)
        if found is not None and found.done and kept.token < self.tokens[kept.id]:
            return
        self.tokens[kept.id] = kept.token
        self.known[kept.id] = Result(done=True, value=kept.value), self.now + kept.lasts

    def follows(self, id: str) -> set[str]:
        """Those that must be told; others that have followed once may be told too."""
        waits = {each for each, (_, until) in self.left.items() if until > self.now}
        return {each for each, until in self.followers.get(id, {}).items() if until > self.now} & waits

    def follow(self, follow: Follow) -> bool | None:
        found = self.read(follow.on)
        if found is not None and not found.done:
            self.followers.setdefault(follow.on, {})[follow.dependent] = follow.until
        return None if found is None else found.done

    def arrive(self, arrival: Arrival) -> bool:
        left, until = self.left.get(arrival.dependent, (set(), 0))
        if until <= self.now:
            return False
        left.discard(arrival.on)
        return not left


class History:
    """Random calls, of two clients. A message waits for others once."""

    def __init__(self, engines: list[Engine], seed: int) -> None:
        self.engines = engines
        self.random = Random(seed)
        self.model = Model()
        sent = engines[0].put([NewMessage("t", b"", delay=10**9)] * 60, now=self.model.now)
        ids = [each.id for each in sent]
        self.ids, self.waiting = ids[:20], ids[20:]
        self.dependents: list[Dependent] = []

    def play(self, steps: int) -> None:
        verbs: list[Callable[[], None]] = [self.expect, self.fulfil, self.read, self.depend, *[self.arrive] * 3]
        verbs += [self.fulfil, self.forget, self.tidy]
        for _ in range(steps):
            self.model.now += self.random.choice(STEPS)
            self.random.choice(verbs)()

    @property
    def engine(self) -> Engine:
        return self.random.choice(self.engines)

    def some(self) -> list[str]:
        return self.random.sample(self.ids, self.random.choice([1, 1, 2, 5]))

    def expect(self) -> None:
        some = [Expected(each, self.model.now + self.random.choice(LASTS)) for each in self.some()]
        self.engine.results.expect(some, now=self.model.now)
        for each in some:
            self.model.expect(each)

    def fulfil(self) -> None:
        chosen = self.random.choice
        some = [Kept(each, chosen(LASTS), chosen(VALUES), chosen(TOKENS)) for each in self.some()]
        told = self.engine.results.fulfil(some, now=self.model.now)
        for kept, followers in zip(some, told, strict=True):
            self.model.fulfil(kept)
            missing = self.model.follows(kept.id) - set(followers)
            insist(not missing, f"{kept.id} is done, and these that wait for it were not told: {missing}")
            agree(f"each is told once of {kept.id}", len(set(followers)), len(followers))

    def read(self) -> None:
        some = [*self.some(), self.dependents[-1].id if self.dependents else "nobody", "never sent"]
        agree(f"what is known of {some}", list(map(self.model.read, some)), self.engine.results.read(some, now=self.model.now))

    def depend(self) -> None:
        """One that waits for the first time, as an id is that of one send; or the same once more."""
        if self.dependents and self.random.random() < 0.2:
            new = self.random.choice(self.dependents)
        elif self.waiting:
            lasts = self.random.choice([10_000, 100_000, 1_000_000])
            new = Dependent(self.waiting.pop(), tuple(self.some()), self.model.now + lasts)
            self.dependents.append(new)
        else:
            return
        if new.until <= self.model.now or (new.id not in self.model.left and new in self.dependents[:-1]):
            return  # it was forgotten: nobody makes it wait again
        self.engine.results.expect([new], now=self.model.now)
        self.model.left.setdefault(new.id, (set(new.on), new.until))
        follows = [Follow(new.id, on, new.until) for on in new.on]
        told = self.engine.results.follow(follows, now=self.model.now)
        agree(f"whether {new.on} are done", list(map(self.model.follow, follows)), told)

    def arrive(self) -> None:
        for each in self.random.sample(self.dependents, min(2, len(self.dependents))):
            on = self.random.choice([*each.on, *each.on, *self.ids])
            [told] = self.engine.results.arrive([Arrival(each.id, on)], now=self.model.now)
            agree(f"whether {each} is ready after {on}", self.model.arrive(Arrival(each.id, on)), told)

    def forget(self) -> None:
        if self.dependents and self.random.random() < 0.3:
            gone = self.random.choice(self.dependents).id
            assert self.engine.results.arrive([Arrival(gone, None)], now=self.model.now) == [False]
            self.model.left.pop(gone, None)

    def tidy(self) -> None:
        for _ in range(1_000):
            if not self.engine.tend(self.random.choice([1, 3, 1_000]), now=self.model.now).more:
                left = self.engine.results.read(self.ids, now=self.model.now)
                agree("what tidying has left", list(map(self.model.read, self.ids)), left)
                return
        raise AssertionError("there is always something left to tidy")


def check_results(make: Callable[[], Engine], *, seed: int, steps: int = 500) -> None:
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
    check_results(source(Settings(url=asked.url)).sync, seed=asked.seed, steps=asked.steps)


if __name__ == "__main__":
    main()
