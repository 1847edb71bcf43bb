"""Rates: how often something may begin."""

from bide.engines.gates import Spend
from bide.testing.contract.bench import Bench, needs


async def spend(bench: Bench, want: int = 1, *, count: int = 3, window: int = 1_000, holder: str | None = None) -> list[int]:
    [spent] = await bench.engine.gates.spend([Spend("r", count, window, want, holder)], now=bench.now)
    return spent.at


class RatesContract:
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
