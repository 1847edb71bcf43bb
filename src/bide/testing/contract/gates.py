"""Gates: who may enter, who waits, and who is called."""

from bide.engines.gates import AGAIN_MS, TURN_MS, Called, Entered, Entry, Held
from bide.testing.contract.bench import LEASE, ROUNDS, Bench, needs
from bide.testing.contract.times import spend

ASKS = 3_000  # ms: a waiter that is a program asks again within them


async def enter(bench: Bench, holder: str, *, gate: str = "g", lease: int = LEASE, **options: object) -> Entered:
    [entered] = await bench.engine.gates.enter([Entry(gate, holder, lease, **options)], now=bench.now)  # type: ignore[arg-type]
    return entered


async def inside(bench: Bench, holder: str, *, gate: str = "g", **options: object) -> Held:
    """Somebody who got a place."""
    entered = await enter(bench, holder, gate=gate, **options)  # type: ignore[arg-type]
    assert entered.token is not None
    return Held(gate, holder, entered.token)


async def wait(bench: Bench, *waiters: str, gate: str = "g", asks: int | None = None) -> None:
    """These get in line, in this order."""
    for waiter in waiters:
        assert (await enter(bench, f"for {waiter}", gate=gate, waiter=waiter, asks=asks)).token is None


async def leave(bench: Bench, *held: Held) -> list[str]:
    """Returns the waiters that are called."""
    left = await bench.engine.gates.leave(held, now=bench.now)
    assert left.answers == [True] * len(held)
    return [each.waiter for each in left.called]


async def keep(bench: Bench, *held: Held, lease: int = LEASE) -> list[bool]:
    return await bench.engine.gates.keep(held, lease, now=bench.now)


async def recall(bench: Bench) -> list[str]:
    """The waiters that upkeep calls now."""
    return [each.waiter for each in (await bench.tend()).called]


class Gating:
    @needs("gates")
    async def test_gates_of_one_name_in_two_namespaces_are_two_gates(self, bench: Bench) -> None:
        other = await bench.another(namespace="other")
        await inside(bench, "a")
        await inside(other, "a")
        assert (await spend(bench, 3), await spend(other, 3)) == ([bench.now] * 3, [bench.now] * 3)

    @needs("gates")
    async def test_gates_leave_nothing_behind(self, bench: Bench) -> None:
        held = await inside(bench, "a")
        await wait(bench, "w", "v")
        assert await leave(bench, held, Held("g", "v", None)) == ["w"]
        await inside(bench, "b", waiter="w")
        await inside(bench, "c", gate="h")
        assert await spend(bench, 3) == [bench.now] * 3
        for _ in range(ROUNDS):
            did = await bench.engine.tend(now=bench.now)
            if did.next_in is None and not did.more:
                return
            bench.move(did.next_in or 0)
        raise AssertionError("there is always something left")

    # entering

    @needs("gates")
    async def test_a_gate_lets_in_as_many_as_it_has_places(self, bench: Bench) -> None:
        entries = [Entry(gate, holder, LEASE, places=2) for gate in ("g", "h") for holder in "abc"]
        entered = await bench.engine.gates.enter(entries, now=bench.now)
        assert [each.token is not None for each in entered] == [True, True, False] * 2

    @needs("gates")
    async def test_the_same_holder_enters_once(self, bench: Bench) -> None:
        first = await enter(bench, "a", places=2)
        bench.move(LEASE // 2)
        assert await enter(bench, "a", places=2) == first
        assert (await enter(bench, "b", places=2)).token is not None
        # And its lease is that of the last time
        bench.move(LEASE - 1)
        assert (await enter(bench, "c", places=2)).token is None

    @needs("gates")
    async def test_a_place_is_free_when_its_lease_has_ended(self, bench: Bench) -> None:
        held = await inside(bench, "a")
        bench.move(LEASE - 1)
        assert (await enter(bench, "b")).token is None
        bench.move(1)
        await inside(bench, "b")
        assert (await bench.engine.gates.leave([held], now=bench.now)).answers == [False]

    @needs("gates")
    async def test_a_wider_or_narrower_gate_counts_from_the_next_entry(self, bench: Bench) -> None:
        held = [await inside(bench, "a"), await inside(bench, "b", places=2), await inside(bench, "c", places=3)]
        assert (await enter(bench, "d", places=2)).token is None
        assert await leave(bench, held[0]) == []
        assert (await enter(bench, "d", places=2)).token is None
        assert await leave(bench, held[1]) == []
        await inside(bench, "d", places=2)

    @needs("gates")
    async def test_gate_tokens_rise_as_text_with_each_entry(self, bench: Bench) -> None:
        tokens = []
        for place in range(12):
            bench.move(place % 2)
            held = await inside(bench, "a", gate=f"g{place % 3}")
            tokens.append(held.token or "")
            await leave(bench, held)
        for gate in range(3):
            own = tokens[gate::3]
            assert own == sorted(set(own))

    @needs("gates")
    async def test_a_newcomer_does_not_overtake_who_waits(self, bench: Bench) -> None:
        held = await inside(bench, "a")
        await wait(bench, "w")
        # Neither when the place is free,
        assert await leave(bench, held) == ["w"]
        assert (await enter(bench, "b")).token is None
        await wait(bench, "v")
        held = await inside(bench, "for w", waiter="w")
        # nor when its lease has ended and nobody was called yet
        bench.move(LEASE)
        assert (await enter(bench, "c")).token is None
        assert await recall(bench) == ["v"]
        await inside(bench, "for v", waiter="v")

    @needs("gates")
    async def test_a_waiter_keeps_its_place_in_the_line(self, bench: Bench) -> None:
        held = await inside(bench, "a", lease=LEASE)
        begin = bench.now
        assert (await enter(bench, "1", waiter="w")).since == begin
        bench.move(5)
        assert (await enter(bench, "2", waiter="v")).since == begin + 5
        assert (await enter(bench, "3", waiter="w")).since == begin
        assert await leave(bench, held) == ["w"]
        # And who is the first enters by itself when there is room
        held = await inside(bench, "4", waiter="w")
        bench.move(LEASE)
        await inside(bench, "5", waiter="v")
        assert await recall(bench) == []

    @needs("gates")
    async def test_who_does_not_wait_is_forgotten(self, bench: Bench) -> None:
        held = await inside(bench, "a")
        assert await enter(bench, "b") == Entered(None, None, LEASE)
        assert await leave(bench, held) == []
        await inside(bench, "c")

    @needs("gates")
    async def test_a_waiter_that_no_longer_asks_leaves_the_line(self, bench: Bench) -> None:
        held = await inside(bench, "a")
        await wait(bench, "dead", asks=ASKS)
        bench.move(ASKS - 1)
        assert (await enter(bench, "b", waiter="v")).token is None
        bench.move(1)
        await bench.engine.gates.leave([held], now=bench.now)
        assert (await enter(bench, "c")).token is None  # it is the turn of v
        await inside(bench, "b", waiter="v")
        # And one that would be let in is not held up either
        await wait(bench, "dead", asks=ASKS)
        bench.move(LEASE)
        await inside(bench, "c")

    @needs("gates")
    async def test_a_waiter_that_asks_again_in_time_keeps_its_place_in_the_line(self, bench: Bench) -> None:
        held, begin = await inside(bench, "a", lease=9 * ASKS), bench.now
        await wait(bench, "w", asks=ASKS)
        await wait(bench, "v")
        for step in (1, 249, ASKS // 2, ASKS * 2 // 3, ASKS * 2 // 3):
            bench.move(step)
            entered = await enter(bench, "for w", waiter="w", asks=ASKS)
            assert (entered.token, entered.since) == (None, begin)
        assert await leave(bench, held) == ["w"]
        # And who was called has its whole turn
        bench.move(TURN_MS - 1)
        await inside(bench, "for w", waiter="w", asks=ASKS)

    @needs("gates")
    async def test_a_waiter_that_asks_again_too_late_goes_to_the_end_of_the_line(self, bench: Bench) -> None:
        held = await inside(bench, "a")
        await wait(bench, "slow", asks=ASKS)
        bench.move(1)
        await wait(bench, "w")
        bench.move(ASKS - 1)
        again = await enter(bench, "for slow", waiter="slow", asks=ASKS)
        assert (again.token, again.since) == (None, bench.now)
        assert await leave(bench, held) == ["w"]
        assert await leave(bench, Held("g", "w", None)) == ["slow"]

    @needs("gates")
    async def test_who_finds_no_place_is_told_when_one_is_free(self, bench: Bench) -> None:
        held = await inside(bench, "a", places=2)
        bench.move(100)
        await inside(bench, "b", places=2)
        assert (await enter(bench, "c", places=2)).free_in == LEASE - 100
        assert (await enter(bench, "d", places=2, waiter="d", asks=ASKS)).free_in == LEASE - 100
        # And a place that is kept is free later
        assert await keep(bench, held, lease=2 * LEASE) == [True]
        assert (await enter(bench, "c", places=2)).free_in == LEASE
        # And so is one that is kept for who was called
        assert await leave(bench, held) == ["d"]
        assert (await enter(bench, "c", places=2)).free_in == min(LEASE, TURN_MS)
        # And a message that waits is called, and needs no time
        assert (await enter(bench, "e", places=2, waiter="e")).free_in is None

    # keeping

    @needs("gates")
    async def test_a_kept_place_ends_later(self, bench: Bench) -> None:
        held = await inside(bench, "a")
        bench.move(LEASE - 1)
        assert await keep(bench, held, Held("g", "b", held.token), lease=3 * LEASE) == [True, False]
        bench.move(3 * LEASE - 1)
        assert (await enter(bench, "b")).token is None
        bench.move(1)
        await inside(bench, "b")

    @needs("gates")
    async def test_a_late_keep_counts_until_the_place_is_taken_back(self, bench: Bench) -> None:
        held = await inside(bench, "a")
        bench.move(LEASE + 1)
        assert await keep(bench, held) == [True]
        assert (await enter(bench, "b")).token is None
        bench.move(LEASE)
        await inside(bench, "b")
        assert await keep(bench, held) == [False]

    @needs("gates")
    async def test_an_old_token_keeps_no_place(self, bench: Bench) -> None:
        old = await inside(bench, "a")
        await leave(bench, old)
        new = await inside(bench, "a")
        bench.move(LEASE - 1)
        assert await keep(bench, old, Held("g", "a", "nonsense"), Held("none", "a", new.token)) == [False] * 3
        bench.move(1)
        await inside(bench, "b")

    # leaving

    @needs("gates")
    async def test_a_place_that_was_left_is_free_at_once(self, bench: Bench) -> None:
        held = await inside(bench, "a")
        assert (await enter(bench, "b")).token is None
        assert await leave(bench, held) == []
        await inside(bench, "b")

    @needs("gates")
    async def test_who_waited_longest_is_called_first(self, bench: Bench) -> None:
        held = [await inside(bench, each, places=3) for each in "abc"]
        for waiter in ("w3", "w1", "w2", "w0"):
            await enter(bench, waiter, places=3, waiter=waiter)
            bench.move(1)
        left = await bench.engine.gates.leave([held[0], held[2]], now=bench.now)
        assert left.called == [Called("g", "w3"), Called("g", "w1")]
        await inside(bench, "x", places=3, waiter="w1")
        assert await leave(bench, held[1]) == ["w2"]

    @needs("gates")
    async def test_a_place_is_kept_for_who_was_called(self, bench: Bench) -> None:
        held = await inside(bench, "a")
        await wait(bench, "w", "v")
        assert await leave(bench, held) == ["w"]
        bench.move(TURN_MS - 1)
        assert (await enter(bench, "b")).token is None
        assert (await enter(bench, "c", waiter="v")).token is None
        await inside(bench, "d", waiter="w")
        assert (await enter(bench, "e", waiter="v")).token is None

    @needs("gates")
    async def test_an_old_token_frees_no_place(self, bench: Bench) -> None:
        old = await inside(bench, "a")
        await leave(bench, old)
        await inside(bench, "a")
        await wait(bench, "w")
        left = await bench.engine.gates.leave([old, Held("g", "a", "nonsense"), Held("none", "a", "1")], now=bench.now)
        assert (left.answers, left.called) == ([False] * 3, [])
        assert (await enter(bench, "b")).token is None

    @needs("gates")
    async def test_a_waiter_that_leaves_the_line_is_not_called(self, bench: Bench) -> None:
        held = await inside(bench, "a")
        await wait(bench, "w", "v")
        assert await leave(bench, Held("g", "w", None)) == []
        left = await bench.engine.gates.leave([Held("g", "w", None), held], now=bench.now)
        assert (left.answers, left.called) == ([False, True], [Called("g", "v")])

    @needs("gates")
    async def test_a_waiter_that_leaves_when_it_was_called_passes_its_turn_on(self, bench: Bench) -> None:
        held = await inside(bench, "a")
        await wait(bench, "w", "v")
        assert await leave(bench, held) == ["w"]
        assert await leave(bench, Held("g", "w", None)) == ["v"]
        assert (await enter(bench, "b", waiter="w")).token is None
        await inside(bench, "c", waiter="v")

    @needs("gates")
    async def test_waiters_that_no_longer_ask_are_not_called(self, bench: Bench) -> None:
        for places, gate in enumerate(("g", "h"), 1):
            held = [await inside(bench, str(n), gate=gate, lease=9 * ASKS, places=places) for n in range(places)]
            for n in range(30):
                await enter(bench, f"for {n}", gate=gate, places=places, waiter=f"dead {n}", asks=ASKS)
            await enter(bench, "for w", gate=gate, places=places, waiter="w")
            await enter(bench, "for v", gate=gate, places=places, waiter="v", asks=2 * ASKS)
            bench.move(ASKS)
            # Those are not in the line any more
            left = await bench.engine.gates.leave([Held(gate, "dead 7", None), held[0]], now=bench.now)
            assert (left.answers, left.called[0]) == ([False, True], Called(gate, "w"))
            assert await leave(bench, Held(gate, "w", None)) == ["v"]

    # upkeep

    @needs("gates")
    async def test_a_place_whose_lease_has_ended_calls_who_waits(self, bench: Bench) -> None:
        for gate in ("g", "h"):
            await inside(bench, "a", gate=gate)
            await wait(bench, f"{gate}1", f"{gate}2", gate=gate)
        bench.move(LEASE - 1)
        assert await recall(bench) == []
        bench.move(1)
        assert sorted(await recall(bench)) == ["g1", "h1"]
        await inside(bench, "b", waiter="g1")

    @needs("gates")
    async def test_tend_calls_none_that_no_longer_asks(self, bench: Bench) -> None:
        await inside(bench, "a", lease=ASKS)
        await wait(bench, "dead", "dead too", asks=ASKS)
        await wait(bench, "w")
        bench.move(ASKS)
        assert await recall(bench) == ["w"]

    @needs("gates")
    async def test_who_was_called_and_does_not_come_is_named_again(self, bench: Bench) -> None:
        held = await inside(bench, "a")
        await wait(bench, "w")
        assert await leave(bench, held) == ["w"]
        assert await recall(bench) == []
        for _ in range(2):
            bench.move(AGAIN_MS)
            assert (await recall(bench), await recall(bench)) == (["w"], [])
        await inside(bench, "b", waiter="w")
        bench.move(AGAIN_MS)
        assert await recall(bench) == []

    @needs("gates")
    async def test_who_does_not_come_in_its_turn_loses_it(self, bench: Bench) -> None:
        held = await inside(bench, "a")
        await wait(bench, "w", "v")
        assert await leave(bench, held) == ["w"]
        bench.move(TURN_MS)
        assert await recall(bench) == ["v"]
        assert (await enter(bench, "b", waiter="w")).token is None
        assert await leave(bench, await inside(bench, "c", waiter="v")) == ["w"]

    @needs("gates")
    async def test_tend_tells_when_gates_need_it_again(self, bench: Bench) -> None:
        assert (await bench.engine.tend(now=bench.now)).next_in is None
        held = await inside(bench, "a")
        await inside(bench, "b", gate="h", lease=5 * LEASE)
        assert (await bench.engine.tend(now=bench.now)).next_in == LEASE
        await wait(bench, "w")
        await leave(bench, held)
        next_in = (await bench.engine.tend(now=bench.now)).next_in
        assert next_in is not None
        assert 0 < next_in <= AGAIN_MS

    @needs("gates")
    async def test_tend_calls_no_more_than_its_budget(self, bench: Bench) -> None:
        for gate in "ghi":
            await inside(bench, "a", gate=gate, places=2)
            await inside(bench, "b", gate=gate, places=2)
            for waiter in "12":
                await enter(bench, waiter, gate=gate, places=2, waiter=f"{gate}{waiter}")
        bench.move(LEASE)
        called: list[str] = []
        for more in (True, True, None):
            did = await bench.engine.tend(2, now=bench.now)
            assert len(did.called) == 2
            assert more in (did.more, None)
            called += [each.waiter for each in did.called]
        assert sorted(called) == ["g1", "g2", "h1", "h2", "i1", "i2"]
        assert await recall(bench) == []
