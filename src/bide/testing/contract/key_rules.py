"""Each row of the rules for a taken key, asked of the engine: they are decided in Python, in Lua and in SQL."""

from typing import Any, get_args

from msgspec.structs import replace

from bide.core.key_rules import RULES, Holder, at_most, gathered, later_of
from bide.core.times import Planned, planned
from bide.engines.base import NewMessage
from bide.testing.contract.bench import Bench, ending, needs

HOLDERS: tuple[Holder, ...] = get_args(Holder)
HELD = (
    b"[1]",
    b"[]",
    b"[[]]",
    b"[",
    b"]",
    b"",
    b"{}",
    b'"[1]"',
    b"[1] ",
    b"[1 ]",
    b"[1\t]",
    b"[1\r]",
    b"[1\n]",
    b"[ 1]",
    b" [1]",
)
LARGEST = 9
WAITS = (2_000, 5_000, 9_000)  # a delay is never longer, say those who send
TIMES: tuple[dict[str, int], ...] = ({"delay": 0}, {"delay": 4_000}, {"delay": 9_000}, {"at": 3_000}, {"at": 8_000})


class KeyRules:
    @needs("keys")
    async def test_a_taken_key_is_answered_by_the_table_of_rules(self, bench: Bench) -> None:
        for how, rules in RULES.items():
            for holder, act in rules.items():
                topic = f"{how}-{holder}"
                held = await holding(bench, topic, holder)
                within = held if holder == "own" else None
                sent = await bench.put(topic, b"[2]", delay=60_000, key="k", if_exists=how, within=within)
                assert sent.outcome == ("created" if act == "successor" else act), topic
                assert (sent.id == held) == (act != "successor"), topic
                body = {"kept": b"[1]", "exists": b"[1]", "merged": b"[1,2]"}.get(act, b"[2]")
                if bench.can.lookup:
                    found = await bench.find(topic=topic, key="k")
                    assert (found.id, found.body, found.due) == (sent.id, body, sent.due), topic
                    assert found.attempt == (HOLDERS.index(holder) > 0 and act in ("kept", "exists")), topic
                    assert (await bench.find(id=held)).key == (None if act == "successor" else "k"), topic

    @needs("keys")
    async def test_bodies_are_merged_by_the_rules(self, bench: Bench) -> None:
        for number, held in enumerate((*HELD, b"[12345]", b"[123456]")):
            topic = f"m{number}"
            first = await bench.put(topic, held, delay=60_000, key="k")
            sent = await bench.put(topic, b"[2]", delay=1_000, key="k", if_exists="merge", largest=LARGEST)
            act, body = gathered(held, b"[2]", LARGEST)
            assert sent.outcome == ("created" if act == "successor" else act), held
            assert (sent.id == first.id) == (act != "successor"), held
            if bench.can.lookup:
                assert (await bench.find(id=first.id)).body == body, held

    @needs("keys")
    async def test_times_of_a_message_that_is_moved_later_go_by_the_rules(self, bench: Bench) -> None:
        cases = [(wait, first, second) for wait in (None, *WAITS) for first in fitting(wait) for second in fitting(wait)]
        options: dict[str, Any] = {"key": "k", "if_exists": "later"}
        begin = bench.now
        expected = []
        for wait, first, _ in cases:
            due, sent = planned_for(first, begin, begin)
            expected.append((due if wait is None else at_most(due, sent + wait), sent))
        put = [new_message(n, first, begin, max_wait=wait, **options) for n, (wait, first, _) in enumerate(cases)]
        for number, sent_ in enumerate(await bench.put_all(*put)):
            assert (sent_.outcome, sent_.due) == ("created", expected[number][0].due), cases[number]
        bench.move(1_000)
        put = [new_message(n, second, begin, max_wait=wait, **options) for n, (wait, _, second) in enumerate(cases)]
        for number, moved in enumerate(await bench.put_all(*put)):
            wait, _, second = cases[number]
            held, sent = expected[number]
            due, _ = planned_for(second, bench.now, begin)
            due = later_of(due if wait is None else at_most(due, sent + wait), held, bench.now, bench.now)
            assert (moved.outcome, moved.due) == ("postponed", due.due), cases[number]

    @needs("keys")
    async def test_what_is_sent_once_in_its_time_may_come_in_batches(self, bench: Bench) -> None:
        batch = [NewMessage("once", b"x", key=f"k{n}", unique_for=60_000) for n in range(3)]
        assert [each.outcome for each in await bench.put_all(*batch)] == ["created"] * 3
        for claimed in await bench.claim("once", limit=3):
            assert await bench.end(claimed, "done") == "done"
        batch += [replace(each, if_exists="error") for each in batch]
        assert [each.outcome for each in await bench.put_all(*batch)] == ["duplicate"] * 3 + ["exists"] * 3


async def holding(bench: Bench, topic: str, holder: Holder) -> str:
    """The id of a message that has the key `k`."""
    sent = await bench.put(topic, b"[1]", key="k", max_attempts=9)
    if holder != "waiting":
        [claimed] = await bench.claim(topic)
        if holder == "delivered":
            await bench.engine.settle([ending(claimed, "retry", delay=5_000)], now=bench.now)
    return sent.id


def fitting(wait: int | None) -> list[dict[str, int]]:
    return [each for each in TIMES if wait is None or each.get("delay", 0) <= wait]


def planned_for(time: dict[str, int], now: int, begin: int) -> tuple[Planned, int]:
    """When that is due by itself, and when it was sent."""
    at = begin + time["at"] if "at" in time else None
    return planned(time.get("delay", 0), at, now, now, now), now


def new_message(number: int, time: dict[str, int], begin: int, **options: Any) -> NewMessage:
    at = begin + time["at"] if "at" in time else None
    return NewMessage(f"l{number}", b"x", delay=time.get("delay", 0), at=at, **options)
