"""Times: by which clock, and how exact; and how many may begin in a stretch of time."""

import random
from collections.abc import AsyncIterator, Iterable

from bide.engines.base import NewMessage, Ref, Window
from bide.engines.gates import Spend
from bide.testing.contract.bench import STATES, Bench, bodies, counts, needs
from bide.types import CancelResult, RescheduleResult, State

HOUR = 3_600_000  # ms
SOON = 600_000
AGAIN = 60_000  # by engine time, an engine looks again so soon whether the clock has reached an instant


SEEN = 8  # sends, by turns to all parts of an engine that has several: each has a time of its own
PAGE = 130


async def was_ahead(bench: Bench) -> int:
    """The clock was an hour ahead, and the engine has seen that. Gives engine time, which stays there."""
    bench.move(HOUR)
    for _ in range(SEEN):
        await bench.put("other", b"seen")
    ahead = bench.now
    bench.move(-HOUR)
    return ahead


class Clocks:
    @needs("instants")
    async def test_an_instant_is_never_handed_out_before_the_clock_has_reached_it(self, bench: Bench) -> None:
        # Given messages for an instant, sent before and after the clock was an hour ahead
        at = bench.now + SOON
        before = await bench.put("mail", b"before", at=at)
        ahead = await was_ahead(bench)
        after = await bench.put("mail", b"after", at=at + 1)
        assert (before.due, after.due) == (at, at + 1)
        # Then no claim hands them out, or asks to be made again at once
        for now in (bench.now, at - 1):
            bench.now = now
            claim = await bench.look("mail", limit=5)
            assert (bodies(claim.messages), claim.now) == ([], ahead)
            assert claim.next_due is not None
            assert claim.next_due > claim.now
        # And they come when the clock has reached them
        bench.now = ahead + AGAIN
        assert sorted(bodies(await bench.claim("mail", limit=5))) == [b"after", b"before"]

    @needs("instants")
    async def test_a_delay_counts_on_engine_time(self, bench: Bench) -> None:
        # Given a message with a delay, and many for an instant that would come first
        for number in range(20):
            await bench.put("mail", b"later", at=bench.now + SOON + number)
        await bench.put("mail", b"delayed", delay=2 * SOON)
        # When the clock was an hour ahead and is set right
        ahead = await was_ahead(bench)
        # Then engine time has passed the delay, and what waits for the clock holds nothing up
        assert bodies(await bench.claim("mail")) == [b"delayed"]
        # And a new delay ends by engine time
        sent = await bench.put("news", delay=1_000)
        assert sent.due == ahead + 1_000

    @needs("instants", "cancel")
    async def test_the_last_time_that_a_message_was_given_says_which_time_it_waits_for(self, bench: Bench) -> None:
        # Given messages that are given other times
        at = bench.now + SOON
        moved = await bench.put("mail", b"instant now", delay=1)
        assert await bench.reschedule(moved.id, at=at) is RescheduleResult.MOVED
        other = await bench.put("mail", b"delayed now", at=at)
        assert await bench.reschedule(other.id, delay=SOON) is RescheduleResult.MOVED
        # When the clock was ahead and is set right
        ahead = await was_ahead(bench)
        # Then the one that has a delay comes first
        [claimed] = await bench.claim("mail", limit=5)
        assert claimed.body == b"delayed now"
        # And so does one that is tried again
        assert await bench.end(claimed, "retry", delay=0, error="no") == "scheduled"
        [claimed] = await bench.claim("mail", limit=5)
        assert (claimed.body, claimed.attempt) == (b"delayed now", 2)
        bench.now = ahead + AGAIN
        assert bodies(await bench.claim("mail", limit=5)) == [b"instant now"]

    @needs("instants", "inspect")
    async def test_an_instant_stays_one_when_its_lease_ends(self, bench: Bench) -> None:
        # Given a message for an instant that was handed out by a clock that was ahead
        at = bench.now + SOON
        await bench.put("mail", b"x", at=at)
        bench.move(HOUR)
        assert len(await bench.claim("mail", lease=1_000)) == 1
        bench.move(1_000)
        assert (await bench.tend()).returned == 1
        # When the clock is set right, it waits again
        ahead = bench.now
        bench.now = at - 1
        assert await bench.claim("mail") == []
        bench.now = ahead + AGAIN
        assert [each.attempt for each in await bench.claim("mail")] == [2]

    @needs("instants")
    async def test_an_instant_does_not_expire_while_the_clock_is_behind_it(self, bench: Bench) -> None:
        # Given a message for an instant that is sent while engine time is ahead
        ahead = await was_ahead(bench)
        await bench.put("mail", b"x", at=bench.now + SOON, expires_in=AGAIN)
        # Then its life begins when engine time comes to the instant
        assert await bench.claim("mail") == []
        assert (await bench.tend()).expired == 0
        bench.now = ahead + AGAIN
        assert bodies(await bench.claim("mail")) == [b"x"]

    @needs("instants", "inspect", "lookup", "cancel")
    async def test_what_waits_for_the_clock_is_scheduled(self, bench: Bench) -> None:
        # Given a message for an instant that is held back
        at = bench.now + SOON
        sent = await bench.put("mail", b"x", at=at)
        await was_ahead(bench)
        assert await bench.claim("mail") == []
        # Then it is told as scheduled for that instant
        found = await bench.find(id=sent.id)
        assert (found.state, found.due) == ("scheduled", at)
        assert counts(await bench.engine.stats("mail", now=bench.now)) == (1, 0, 0, 0)
        assert [each.id for each in await bench.stored("mail", "scheduled")] == [sent.id]
        # And can be moved and cancelled
        assert await bench.reschedule(sent.id, at=at + 1) is RescheduleResult.MOVED
        assert await bench.claim("mail") == []
        [result] = await bench.engine.cancel([Ref(id=sent.id)], now=bench.now)
        assert result is CancelResult.CANCELLED


MANY, OTHERS = 1_700, 1_500  # messages of the topic, and of another topic
SECOND, MINUTE, HOUR, DAY = 1_000, 60_000, 3_600_000, 86_400_000
SPANS = (0, 1, 500, 40_000, 70_000, HOUR, HOUR + 30_000, DAY, 25 * DAY)
STEPS = (0, 700, 44_300, HOUR, 20 * DAY)  # the third ends when many messages fall due
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
    async def test_a_window_beyond_ten_thousand_is_exact_or_said_to_be_about(self, bench: Bench) -> None:
        # Given two topics, one with just over ten thousand messages in a window, and some later
        for _ in range(11):
            await bench.put_all(*[NewMessage("mail", b"x", delay=HOUR)] * 1_000)
        await bench.put_all(*[NewMessage(topic, b"x", delay=2 * HOUR) for topic in ("mail", "mail", "news")])
        for hours, mails, news in ((1, 11_000, 0), (2, 2, 1)):
            window = Window(bench.now + hours * HOUR - MINUTE, bench.now + hours * HOUR + MINUTE, 4, about=True)
            together = await bench.engine.stats(window=window, now=bench.now)
            for stats in (await bench.engine.stats("mail", window=window, now=bench.now), together.topics["mail"]):
                # Then it has them all in the right part, or an estimate that says so; and what is less is exact
                found = stats.timeline[2]
                assert (9_000 < found < 13_000) if stats.about and mails > 10_000 else (found == mails)
                assert sum(stats.timeline) == found
            assert together.topics["news"].timeline[2] == news
            assert together.topics["news"].about is False

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


async def spend(bench: Bench, want: int = 1, *, count: int = 3, window: int = 1_000, holder: str | None = None) -> list[int]:
    [spent] = await bench.engine.gates.spend([Spend("r", count, window, want, holder)], now=bench.now)
    return spent.at


class Rates:
    @needs("gates")
    async def test_no_window_holds_more_than_its_count(self, bench: Bench) -> None:
        at: list[int] = []
        for step in (0, 0, 1, 250, 400, 600, 1, 998, 1, 1, 5_000, 10):
            bench.move(step)
            at += await spend(bench, 2)
        assert at == sorted(at)
        assert all(later - sooner >= 1_000 for sooner, later in zip(at, at[3:], strict=False))
        assert len(at) > 9

    @needs("gates")
    async def test_what_may_not_begin_yet_is_told_when(self, bench: Bench) -> None:
        gates = bench.engine.gates
        [spent] = await gates.spend([Spend("r", 3, 1_000, 5)], now=bench.now)
        assert (spent.at, spent.next_at, spent.now) == ([bench.now] * 3, bench.now + 1_000, bench.now)
        bench.move(999)
        [spent] = await gates.spend([Spend("r", 3, 1_000)], now=bench.now)
        assert (spent.at, spent.next_at) == ([], bench.now + 1)
        bench.move(1)
        [spent, other] = await gates.spend([Spend("r", 3, 1_000), Spend("s", 1, 50)], now=bench.now)
        assert (spent.at, spent.next_at, other.at) == ([bench.now], bench.now, [bench.now])

    @needs("gates")
    async def test_an_instant_to_come_is_kept_for_its_holder(self, bench: Bench) -> None:
        assert [await spend(bench, holder=each) for each in "abc"] == [[bench.now]] * 3
        later = bench.now + 1_000
        assert [await spend(bench, holder=each) for each in "defg"] == [[later]] * 3 + [[later + 1_000]]
        assert [await spend(bench, holder=each) for each in "gd"] == [[later + 1_000], [later]]
        bench.now = later
        # Who comes now is behind all of them, and each gets it once
        assert await spend(bench, holder="h") == [later + 1_000]
        assert [await spend(bench, holder=each) for each in "edfd"] == [[later]] * 3 + [[later + 1_000]]

    @needs("gates")
    async def test_who_comes_late_for_its_instant_begins_when_the_rate_lets_it(self, bench: Bench) -> None:
        assert await spend(bench, 3) == [bench.now] * 3
        at = bench.now + 1_000
        assert [await spend(bench, holder=each) for each in "abcde"] == [[at]] * 3 + [[at + 1_000]] * 2
        bench.now = late = at + 900
        assert [await spend(bench, holder=each) for each in "ab"] == [[late]] * 2
        # Those behind begin so much later that no window holds too many
        bench.now = at + 1_000
        assert [await spend(bench, holder=each) for each in "cde"] == [[at + 1_000], [late + 1_000], [late + 1_000]]
        bench.now = late + 1_000
        assert [await spend(bench, holder=each) for each in "de"] == [[late + 1_000]] * 2

    @needs("gates")
    async def test_nobody_waits_for_who_does_not_come_for_its_instant(self, bench: Bench) -> None:
        assert await spend(bench, 3) == [bench.now] * 3
        at = [await spend(bench, holder=f"h{i}") for i in range(300)]
        assert at[-1] == [bench.now + 100_000]
        assert await spend(bench, holder="a") == [bench.now + 101_000]
        bench.move(1_000)  # nobody comes, and it looks by itself
        assert await spend(bench, holder="a") == [bench.now]

    @needs("gates")
    async def test_a_rate_is_used_up_to_a_hundredth(self, bench: Bench) -> None:
        for count in (1, 7, 100, 101, 250, 999):
            window, done = 10_000, 0
            gate = f"of {count}"
            begin = bench.now
            for _ in range(40):
                want = max(1, count // 9)
                [spent] = await bench.engine.gates.spend([Spend(gate, count, window, want)], now=bench.now)
                done += len(spent.at)
                bench.move(window // 10)
            windows = (bench.now - begin) // window
            assert count * windows * 0.98 - count // 10 <= done <= count * windows

    @needs("gates")
    async def test_a_new_rate_counts_what_was_spent_at_the_old_one(self, bench: Bench) -> None:
        assert len(await spend(bench, 9, count=250)) == 9
        assert len(await spend(bench, 9, count=10)) == 1
        assert await spend(bench, 9, count=4) == []
        bench.move(1_000)
        assert len(await spend(bench, 9, count=4)) == 4
        # And a longer window holds what a shorter one held
        assert len(await spend(bench, 9, count=4, window=3_000)) == 0
        bench.move(2_000)
        assert await spend(bench, 9, count=4, window=3_000) == []
        bench.move(1_000)
        assert len(await spend(bench, 9, count=4, window=3_000)) == 4
        bench.move(500)  # and a shorter one nothing that is older
        assert len(await spend(bench, 9, count=4, window=500)) == 4
