"""Kept results: what is expected, what is kept and for how long; and messages that wait for others."""

from bide.engines.results import OPEN, Arrival, Dependent, Expected, Follow, Kept, Result
from bide.testing.contract.bench import Bench, needs

LASTS = 60_000


async def sent(bench: Bench, many: int = 1) -> list[str]:
    """The ids of messages: where a result is kept may follow from the id."""
    return [(await bench.put("t", delay=10 * LASTS)).id for _ in range(many)]


async def expect(bench: Bench, *ids: str, lasts: int = LASTS) -> None:
    await bench.engine.results.expect([Expected(each, bench.now + lasts) for each in ids], now=bench.now)


async def fulfil(bench: Bench, *ids: str, value: bytes | None = b"7", lasts: int = LASTS) -> list[list[str]]:
    return await bench.engine.results.fulfil([Kept(each, lasts, value) for each in ids], now=bench.now)


async def read(bench: Bench, *ids: str) -> list[Result | None]:
    return await bench.engine.results.read(ids, now=bench.now)


async def depend(bench: Bench, dependent: str, *on: str, lasts: int = LASTS) -> list[bool | None]:
    """A message waits for others from now on; whether each of them is done already."""
    until = bench.now + lasts
    await bench.engine.results.expect([Dependent(dependent, on, until)], now=bench.now)
    return await bench.engine.results.follow([Follow(dependent, each, until) for each in on], now=bench.now)


async def arrive(bench: Bench, dependent: str, *on: str) -> list[bool]:
    return await bench.engine.results.arrive([Arrival(dependent, each) for each in on], now=bench.now)


async def called(bench: Bench, *dependents: str) -> None:
    """Messages need not wait any longer."""
    told = await bench.engine.results.arrive([Arrival(each, None) for each in dependents], now=bench.now)
    assert told == [False] * len(dependents)


class Keeping:
    @needs("results")
    async def test_results_belong_to_their_namespace(self, bench: Bench) -> None:
        [one, other] = await sent(bench, 2)
        await expect(bench, one, other)
        await depend(bench, other, one)
        await fulfil(bench, one)
        elsewhere = await bench.another(namespace="other")
        assert await read(elsewhere, one, other) == [None, None]
        assert await arrive(elsewhere, other, one) == [False]

    # expecting

    @needs("results")
    async def test_a_result_that_is_expected_is_not_done(self, bench: Bench) -> None:
        ids = await sent(bench, 3)
        await expect(bench, *ids[:2])
        assert await read(bench, *ids) == [OPEN, OPEN, None]

    @needs("results")
    async def test_expecting_again_changes_nothing(self, bench: Bench) -> None:
        [one, other] = await sent(bench, 2)
        await expect(bench, one, other, one)
        await fulfil(bench, one, value=b"1")
        bench.move(LASTS - 1)
        await expect(bench, one, other)
        assert await read(bench, one, other) == [Result(done=True, value=b"1"), OPEN]
        bench.move(1)
        assert await read(bench, one, other) == [None, None]
        await expect(bench, one)
        assert await read(bench, one) == [OPEN]

    @needs("results")
    async def test_what_is_expected_is_forgotten_in_time(self, bench: Bench) -> None:
        [one] = await sent(bench)
        await expect(bench, one, lasts=1_000)
        bench.move(999)
        assert await read(bench, one) == [OPEN]
        bench.move(1)
        assert await read(bench, one) == [None]

    # keeping

    @needs("results")
    async def test_a_result_is_read_as_it_was_kept(self, bench: Bench) -> None:
        ids = await sent(bench, 4)
        values = [b"", bytes(range(256)), b'{"a": "\xd0\xb9"}', b"x" * 100_000]
        kept = [Kept(id, LASTS, value) for id, value in zip(ids, values, strict=True)]
        await expect(bench, *ids)
        assert await bench.engine.results.fulfil(kept, now=bench.now) == [[]] * 4
        assert [each and each.value for each in await read(bench, *ids)] == values

    @needs("results")
    async def test_a_result_may_be_kept_that_nobody_expected(self, bench: Bench) -> None:
        [one] = await sent(bench)
        await fulfil(bench, one)
        assert await read(bench, one) == [Result(done=True, value=b"7")]

    @needs("results")
    async def test_a_result_may_be_done_without_a_value(self, bench: Bench) -> None:
        [one] = await sent(bench)
        await fulfil(bench, one, value=None)
        assert await read(bench, one) == [Result(done=True, value=None)]

    @needs("results")
    async def test_the_last_value_of_a_result_counts(self, bench: Bench) -> None:
        [one] = await sent(bench)
        await fulfil(bench, one, value=b"1", lasts=10)
        await fulfil(bench, one, value=None)
        kept = [Kept(one, LASTS, b"2"), Kept(one, LASTS, b"3")]
        await bench.engine.results.fulfil(kept, now=bench.now)
        assert await read(bench, one, one) == [Result(done=True, value=b"3")] * 2

    @needs("results")
    async def test_what_an_earlier_delivery_returned_changes_nothing(self, bench: Bench) -> None:
        one = await bench.put("t", max_attempts=9)
        tokens = []
        for _ in range(3):
            [claimed] = await bench.claim("t")
            tokens.append(claimed.token)
            await bench.end(claimed, "retry")
        first, second, third = tokens

        async def keep(value: bytes, *tokens: str, lasts: int = LASTS) -> bytes | None:
            kept = [Kept(one.id, lasts, value, token) for token in tokens]
            assert await bench.engine.results.fulfil(kept, now=bench.now) == [[]] * len(tokens)
            [found] = await read(bench, one.id)
            return None if found is None else found.value

        await expect(bench, one.id)
        assert [await keep(b"2", second), await keep(b"1", first), await keep(b"again", second)] == [b"2", b"2", b"again"]
        assert [await keep(b"3", third, first, lasts=1_000), await keep(b"2", second)] == [b"3", b"3"]
        bench.move(1_000)  # its time is over
        assert [await read(bench, one.id), await keep(b"1", first)] == [[None], b"1"]

    @needs("results")
    async def test_a_result_is_forgotten_in_time(self, bench: Bench) -> None:
        [short, long] = await sent(bench, 2)
        await expect(bench, short, lasts=10 * LASTS)
        await fulfil(bench, short, lasts=1_000)
        await fulfil(bench, long, lasts=2_000)
        bench.move(999)
        assert None not in await read(bench, short, long)
        bench.move(1)
        assert await read(bench, short, long) == [None, Result(done=True, value=b"7")]
        bench.move(1_000)
        assert await read(bench, long) == [None]

    @needs("results")
    async def test_fulfilling_tells_who_follows(self, bench: Bench) -> None:
        [one, other, first, second] = await sent(bench, 4)
        await expect(bench, one, other)
        assert await depend(bench, first, one, other) == [False, False]
        assert await depend(bench, second, one) == [False]
        told = await fulfil(bench, one, other)
        assert [sorted(each) for each in told] == [sorted([first, second]), [first]]
        # And again, if it runs again
        assert sorted((await fulfil(bench, one))[0]) == sorted([first, second])

    # reading

    @needs("results")
    async def test_nothing_is_known_of_a_result_that_was_never_expected(self, bench: Bench) -> None:
        [one] = await sent(bench)
        assert await read(bench, one, "no such id") == [None, None]
        assert await read(bench) == []

    # upkeep

    @needs("results")
    async def test_tend_removes_only_results_that_are_over(self, bench: Bench) -> None:
        ids = await sent(bench, 6)
        await expect(bench, *ids, lasts=1_000)
        await fulfil(bench, ids[0], lasts=2_000)
        await depend(bench, ids[5], ids[0], lasts=2_000)
        bench.move(1_000)
        await bench.tend(2)
        assert await read(bench, *ids) == [Result(done=True, value=b"7"), *[None] * 5]
        assert await arrive(bench, ids[5], ids[0]) == [True]
        bench.move(1_000)
        await bench.tend(2)
        assert await read(bench, ids[0]) == [None]
        assert await arrive(bench, ids[5], ids[0]) == [False]

    # dependent messages

    @needs("results")
    async def test_depending_again_changes_nothing(self, bench: Bench) -> None:
        [one, other, dependent] = await sent(bench, 3)
        await expect(bench, one, other)
        await depend(bench, dependent, one, other)
        assert await arrive(bench, dependent, one) == [False]
        assert await depend(bench, dependent, one, other) == [False, False]
        assert await arrive(bench, dependent, other) == [True]

    @needs("results")
    async def test_what_a_message_waits_for_is_forgotten_in_time(self, bench: Bench) -> None:
        [one, early, late] = await sent(bench, 3)
        await expect(bench, one)
        await depend(bench, early, one, lasts=1_000)
        await depend(bench, late, one, lasts=1_001)
        bench.move(1_000)
        assert await arrive(bench, early, one) == [False]
        assert await arrive(bench, late, one) == [True]

    @needs("results")
    async def test_what_is_done_already_is_told(self, bench: Bench) -> None:
        [one, other, dependent] = await sent(bench, 3)
        await expect(bench, one, other)
        await fulfil(bench, one)
        assert await depend(bench, dependent, other, one) == [False, True]

    @needs("results")
    async def test_what_is_not_known_can_not_be_followed(self, bench: Bench) -> None:
        [one, other, dependent] = await sent(bench, 3)
        await fulfil(bench, one, lasts=1_000)
        bench.move(1_000)
        assert await depend(bench, dependent, one, other) == [None, None]

    @needs("results")
    async def test_a_dependent_message_is_ready_when_all_it_waits_for_has_arrived(self, bench: Bench) -> None:
        [one, two, three, dependent, other] = await sent(bench, 5)
        await expect(bench, one, two, three)
        await depend(bench, dependent, one, two, three)
        await depend(bench, other, three)
        assert await arrive(bench, dependent, two) == [False]
        arrivals = [Arrival(dependent, one), Arrival(other, three), Arrival(dependent, three)]
        told = await bench.engine.results.arrive(arrivals, now=bench.now)
        assert told[1:] == [True, True]

    @needs("results")
    async def test_what_arrives_again_changes_nothing(self, bench: Bench) -> None:
        [one, two, dependent] = await sent(bench, 3)
        await expect(bench, one, two)
        await depend(bench, dependent, one, two)
        assert await arrive(bench, dependent, one) == [False]
        assert await arrive(bench, dependent, one) == [False]
        assert await arrive(bench, dependent, dependent) == [False]
        assert await arrive(bench, dependent, two) == [True]
        assert await arrive(bench, dependent, one) == [True]

    @needs("results")
    async def test_a_dependent_message_that_was_forgotten_is_not_ready(self, bench: Bench) -> None:
        [one, dependent] = await sent(bench, 2)
        await expect(bench, one)
        await depend(bench, dependent, one)
        assert await arrive(bench, dependent, one) == [True]
        await called(bench, dependent)
        assert await arrive(bench, dependent, one) == [False]

    @needs("results")
    async def test_forgetting_leaves_other_dependent_messages_alone(self, bench: Bench) -> None:
        [one, dependent, other] = await sent(bench, 3)
        await expect(bench, one)
        await depend(bench, dependent, one)
        await depend(bench, other, one)
        await called(bench, dependent, one)
        assert other in (await fulfil(bench, one))[0]
        assert await arrive(bench, other, one) == [True]
