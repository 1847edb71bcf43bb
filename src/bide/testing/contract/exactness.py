"""Exactness: counts, times and listings of a topic are exact, also when it has more messages than an engine reads at once."""

import random
from collections.abc import AsyncIterator, Iterable

from bide.engines.base import NewMessage, Window
from bide.testing.contract.bench import STATES, Bench, counts, needs
from bide.types import State

MANY, OTHERS = 1_700, 1_500  # messages of the topic, and of another topic
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
SPANS = (0, 1, 500, 40_000, 70_000, HOUR, HOUR + 30_000, DAY, 25 * DAY)
STEPS = (0, 700, 44_300, HOUR, 20 * DAY)  # the third ends when many messages fall due
PAGE = 130
WHOLE: tuple[State | None, ...] = (None,)
EACH: tuple[State | None, ...] = STATES


class Crowd:
    """A large topic, and what should be told of it."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.dues: dict[str, int] = {}  # of pending messages
        self.others: dict[State, int] = {"leased": 0, "dead": 0}
        self._chance = random.Random(1)

    async def gather(self) -> None:
        """Many due times, close together and far apart, many at one instant; some messages are cancelled, some moved."""
        bench, chance = self.bench, self._chance
        delays = [chance.choice(SPANS) + chance.randrange(chance.choice((1, 3, 2_000, HOUR))) for _ in range(MANY)]
        delays += [45_000] * (MANY // 3)
        chance.shuffle(delays)
        levels = 3 if bench.can.priority else 1
        new = [NewMessage("mail", b"x", delay=delay, level=i % levels or 1) for i, delay in enumerate(delays)]
        for i in range(0, len(new), 1_000):
            self.dues |= {sent.id: sent.due for sent in await bench.put_all(*new[i : i + 1_000])}
        for delay in (0, 45_000):
            await bench.put_all(*[NewMessage("news", b"x", delay=delay)] * (OTHERS // 2))
        for id in chance.sample(sorted(self.dues), 100) if bench.can.cancel else ():
            await bench.cancel(id=id)
            del self.dues[id]
        for id in chance.sample(sorted(self.dues), 100) if bench.can.cancel else ():
            delay = chance.choice(SPANS) + chance.randrange(5)
            await bench.reschedule(id, delay=delay)
            self.dues[id] = bench.now + delay

    async def as_time_goes_by(self) -> AsyncIterator[None]:
        """Time passes; now and then some messages are claimed, ended and buried."""
        for step in STEPS:
            self.bench.move(step)
            yield
            for i, each in enumerate(await self.bench.claim("mail", limit=9, lease=50 * DAY)):
                del self.dues[each.id]
                if i % 3 == 0:
                    self.others["leased"] += 1
                else:
                    self.others["dead"] += await self.bench.end(each, "dead" if i % 3 == 1 else "done") == "dead"
            yield

    def due(self, *, ready: bool) -> list[int]:
        """The due times, in order."""
        return sorted(due for due in self.dues.values() if (due <= self.bench.now) == ready)

    def windows(self) -> list[Window]:
        now = self.bench.now
        return [
            Window(now - HOUR, now + HOUR, 60),
            Window(now, now + SECOND, 4),
            Window(now - 50_000, now - 20_000, 10),
            Window(now + MINUTE, now + 25 * DAY + MINUTE, 25),
        ]


async def crowded(bench: Bench) -> Crowd:
    found = Crowd(bench)
    await found.gather()
    return found


def parts(dues: Iterable[int], window: Window) -> list[int]:
    """How many messages fall due in each part."""
    counts = [0] * window.parts
    for due in dues:
        if window.start <= due < window.end:
            counts[(due - window.start) * window.parts // (window.end - window.start)] += 1
    return counts


class Exactness:
    @needs("inspect")
    async def test_counts_of_a_large_topic_are_exact(self, bench: Bench) -> None:
        large = await crowded(bench)
        async for _ in large.as_time_goes_by():
            ready, scheduled = large.due(ready=True), large.due(ready=False)
            truth = (len(scheduled), len(ready), large.others["leased"], large.others["dead"])
            together = await bench.engine.stats(now=bench.now)
            assert counts(await bench.engine.stats("mail", now=bench.now)) == counts(together.topics["mail"]) == truth
            assert sum(counts(together.topics["news"])) == OTHERS

    @needs("inspect")
    async def test_counts_beyond_ten_thousand_are_exact_or_said_to_be_about(self, bench: Bench) -> None:
        # Given a topic with just over ten thousand scheduled messages, and one with few
        await bench.put_all(NewMessage("news", b"x", delay=HOUR), NewMessage("mail", b"x"))
        for _ in range(11):
            await bench.put_all(*[NewMessage("mail", b"x", delay=HOUR)] * 1_000)
        for topic, many in (("mail", 11_000), ("news", 1)):
            stats = await bench.engine.stats(topic, now=bench.now)
            # Then a count is exact, or an estimate that says so and is not below ten thousand
            assert (stats.scheduled > 10_000) if stats.about else (stats.scheduled == many)
            assert not (stats.about and many < 10_000)
        together = await bench.engine.stats(now=bench.now)
        assert together.about == together.topics["mail"].about
        assert (together.ready, together.topics["news"].about) == (1, False)

    @needs("inspect")
    async def test_the_first_due_times_of_a_large_topic_are_exact(self, bench: Bench) -> None:
        large = await crowded(bench)
        async for _ in large.as_time_goes_by():
            ready, scheduled = large.due(ready=True), large.due(ready=False)
            overdue = (bench.now - min(ready)) / 1_000 if ready else None
            together = await bench.engine.stats(now=bench.now)
            for stats in (await bench.engine.stats("mail", now=bench.now), together.topics["mail"]):
                assert (stats.oldest_overdue, stats.next_due) == (overdue, min(scheduled, default=None))

    @needs("inspect")
    async def test_the_timeline_of_a_large_topic_is_exact(self, bench: Bench) -> None:
        large = await crowded(bench)
        async for _ in large.as_time_goes_by():
            for window in large.windows():
                stats = await bench.engine.stats("mail", window=window, now=bench.now)
                assert list(stats.timeline) == parts(large.dues.values(), window)

    @needs("inspect")
    async def test_a_large_topic_is_listed_whole_and_in_due_order(self, bench: Bench) -> None:
        large = await crowded(bench)
        async for _ in large.as_time_goes_by():
            for states in WHOLE, EACH:
                shown = [each for state in states for each in await bench.stored("mail", state, limit=PAGE)]
                told: dict[State, list[int]] = {state: [each.due for each in shown if each.state == state] for state in STATES}
                assert (told["scheduled"], told["ready"]) == (large.due(ready=False), large.due(ready=True))
                assert (len(told["leased"]), len(told["dead"])) == (large.others["leased"], large.others["dead"])
                assert {each.id: each.due for each in shown if each.id in large.dues} == large.dues
                assert len({each.id for each in shown}) == len(shown)
