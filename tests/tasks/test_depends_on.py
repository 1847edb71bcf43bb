"""Messages that wait for others: due when all of them are done, or else at their deadline. In time travel."""

from collections.abc import Callable
from typing import Any

import pytest

from bide import BadMessage, BadOption, BadTime, Bury, ManualClock, ResultFailed, current
from bide.engines.results import Arrival
from bide.types import Sent

Do = Callable[[Any], Any]


class Kitchen:
    """Tasks that take a while, and one that waits for them."""

    def __init__(self, queue: Any, do: Do) -> None:
        self.queue, self.do = queue, do
        self.clock: ManualClock = queue.session.setup.clock
        self.start = self.clock.now_ms
        self.served: list[tuple[float, list[Any]]] = []

        @queue.task("cook", keep="2d")
        def cook(dish: str) -> str:
            return f"hot {dish}"

        @queue.task("burn", keep="2d")
        def burn(dish: str) -> str:
            raise Bury(f"{dish} is burnt")

        @queue.task("serve", keep="2d")
        def serve() -> int:
            self.served.append(((self.clock.now_ms - self.start) / 1000, list(current().depends_on)))
            return len(current().depends_on)

        self.cook, self.burn, self.serve = cook, burn, serve

    def wait_for(self, *sent: Any, **options: Any) -> Sent:
        found: Sent = self.do(self.serve.options(depends_on=sent, **options).send())
        return found

    def advance(self, by: str) -> list[str]:
        return [each.topic for each in self.do(self.queue.testing.advance(by))]


@pytest.fixture
def kitchen(queue: Any, do: Do) -> Kitchen:
    return Kitchen(queue, do)


def test_a_message_is_due_when_all_that_it_waits_for_are_done(kitchen: Kitchen) -> None:
    sent = [kitchen.do(kitchen.cook.after(f"{n}m").send(f"dish {n}")) for n in (3, 1, 2)]
    last = kitchen.wait_for(*sent)
    assert kitchen.advance("1h") == ["cook", "cook", "cook", "serve"]
    assert kitchen.served == [(180, [each.id for each in sent])]
    assert [kitchen.do(kitchen.queue.result(each, timeout=0)) for each in sent] == ["hot dish 3", "hot dish 1", "hot dish 2"]
    assert kitchen.do(kitchen.queue.result(last, timeout=0)) == 3


def test_what_is_done_already_is_not_waited_for(kitchen: Kitchen) -> None:
    done = kitchen.do(kitchen.cook.send("soup"))
    kitchen.advance("10s")
    kitchen.wait_for(done.id)
    assert kitchen.advance("0s") == ["serve"]
    assert kitchen.served == [(10, [done.id])]


def test_a_message_is_due_at_its_deadline_when_others_are_not_done(kitchen: Kitchen) -> None:
    slow, burnt, cancelled = (
        kitchen.do(kitchen.cook.after("2h").send("stew")),
        kitchen.do(kitchen.burn.send("toast")),
        kitchen.do(kitchen.cook.after("1m").send("salad")),
    )
    for each in (slow, burnt, cancelled):
        kitchen.wait_for(each, deadline="1h")
    kitchen.do(kitchen.queue.cancel(cancelled))
    kitchen.advance("59m")
    assert kitchen.served == []
    kitchen.advance("1m")
    assert [at for at, _ in kitchen.served] == [3_600] * 3
    with pytest.raises(ResultFailed, match="toast is burnt"):
        kitchen.do(kitchen.queue.result(kitchen.served[1][1][0], timeout=0))
    # What is done later calls nobody
    assert kitchen.advance("2h") == ["cook"]


def test_what_is_moved_is_called_until_its_deadline_all_the_same(kitchen: Kitchen) -> None:
    slow, quick, late = (kitchen.do(kitchen.cook.after(after).send("stew")) for after in ("5h", "1h", "2h"))
    for each, deadline in ((slow, "6h"), (quick, "6h"), (late, "30m")):
        assert kitchen.do(kitchen.queue.reschedule(kitchen.wait_for(each, deadline=deadline), delay="3h"))
    kitchen.advance("4h")
    assert [(at, on) for at, [on] in kitchen.served[:1]] == [(3_600, quick.id)]
    assert sorted((at, on) for at, [on] in kitchen.served[1:]) == sorted([(10_800, slow.id), (10_800, late.id)])


def test_the_deadline_is_a_day_unless_it_is_said(kitchen: Kitchen) -> None:
    sent = kitchen.do(kitchen.cook.after("2d").send("stew"))
    waits = kitchen.wait_for(sent)
    assert waits.due == kitchen.start + 86_400_000
    kitchen.advance("1d")
    assert [at for at, _ in kitchen.served] == [86_400]


def test_a_message_that_waits_may_be_waited_for(kitchen: Kitchen) -> None:
    first = kitchen.do(kitchen.cook.after("1m").send("stock"))
    second = kitchen.wait_for(first)
    third = kitchen.wait_for(first, second)
    kitchen.advance("1m")
    assert kitchen.served == [(60, [first.id]), (60, [first.id, second.id])]
    assert kitchen.do(kitchen.queue.result(third, timeout=0)) == 2


def test_a_dead_letter_that_is_requeued_and_done_calls_who_waits(kitchen: Kitchen) -> None:
    fails = [True]

    @kitchen.queue.task("oven", keep="2d")
    def oven() -> None:
        if fails.pop():
            raise Bury("no gas")

    sent = kitchen.do(oven.send())
    kitchen.wait_for(sent)
    kitchen.advance("1h")
    fails.append(False)
    kitchen.do(kitchen.queue.requeue("oven"))
    assert kitchen.advance("0s") == ["oven", "serve"]


def test_a_message_that_waits_can_be_cancelled_and_moved(kitchen: Kitchen) -> None:
    sent = kitchen.do(kitchen.cook.after("1h").send("stew"))
    gone, moved = kitchen.wait_for(sent), kitchen.wait_for(sent)
    assert kitchen.do(kitchen.queue.cancel(gone))
    assert kitchen.do(kitchen.queue.reschedule(moved, delay="1m"))
    kitchen.advance("1m")
    assert [at for at, _ in kitchen.served] == [60]
    assert kitchen.advance("2h") == ["cook"]


def test_many_parts_and_what_comes_after_all_of_them(kitchen: Kitchen) -> None:
    parts = kitchen.do(kitchen.cook.after("1s").send_many({"dish": f"{n}"} for n in range(300)))
    kitchen.wait_for(*parts)
    assert kitchen.advance("1s")[-2:] == ["cook", "serve"]
    assert [(at, len(ids)) for at, ids in kitchen.served] == [(1, 300)]


def test_the_twin_and_queue_send_take_it_too(kitchen: Kitchen) -> None:
    sent = kitchen.do(kitchen.cook.after("1m").send("stew"))
    kitchen.do(kitchen.queue.send("serve", {}, depends_on=[sent], deadline="1h"))
    kitchen.advance("1m")
    assert kitchen.served == [(60, [sent.id])]


def test_a_key_that_is_taken_makes_nobody_wait(kitchen: Kitchen) -> None:
    sent = kitchen.do(kitchen.cook.after("1m").send("stew"))
    first = kitchen.do(kitchen.serve.options(key="k", delay="1h").send())
    assert kitchen.wait_for(sent, key="k").id == first.id
    kitchen.advance("10m")
    assert kitchen.served == []


def test_sending_again_with_its_operation_is_harmless(kitchen: Kitchen) -> None:
    sent = kitchen.do(kitchen.cook.after("1m").send("stew"))
    first = kitchen.wait_for(sent, operation="once")
    kitchen.advance("30s")
    assert kitchen.wait_for(sent, operation="once").id == first.id
    kitchen.advance("30s")
    assert [at for at, _ in kitchen.served] == [60]


def test_nothing_is_left_of_a_message_that_was_called(kitchen: Kitchen) -> None:
    sent = kitchen.do(kitchen.cook.send("stew"))
    waits = kitchen.wait_for(sent)
    kitchen.advance("0s")
    results = kitchen.do(kitchen.queue.session.engine()).results
    assert kitchen.do(results.arrive([Arrival(waits.id, sent.id)])) == [False]


def test_only_messages_whose_results_are_kept_may_be_waited_for(kitchen: Kitchen) -> None:
    @kitchen.queue.task("plain")
    def plain() -> None: ...

    sent = kitchen.do(plain.send())
    for on in (sent, sent.id, "no such id"):
        with pytest.raises(BadMessage, match="keep="):
            kitchen.wait_for(on)
    assert kitchen.do(kitchen.queue.stats("serve")).pending == 0


def test_what_can_not_be_meant_is_refused(kitchen: Kitchen) -> None:
    sent = kitchen.do(kitchen.cook.send("stew"))
    for error, options in (
        (BadTime, {"depends_on": [sent], "delay": "1m"}),
        (BadOption, {"deadline": "1m"}),
        (BadOption, {"depends_on": []}),
        (BadOption, {"depends_on": sent}),
        (BadOption, {"depends_on": ["a,b"]}),
        (BadOption, {"depends_on": [f"{n}" for n in range(1_001)]}),
        (BadOption, {"depends_on": [sent], "key": "k", "if_exists": "replace"}),
    ):
        with pytest.raises(error):
            kitchen.do(kitchen.serve.options(**options).send())
    with pytest.raises(BadOption, match=r"depends_on holds a int\. Give what send returned, or ids"):
        kitchen.do(kitchen.serve.options(depends_on=[7]).send())
    with pytest.raises(BadTime):
        kitchen.do(kitchen.serve.after("1m").options(depends_on=[sent]).send())
    with pytest.raises(BadOption, match="one message"):
        kitchen.do(kitchen.serve.options(depends_on=[sent]).send_many([{}]))
    with pytest.raises(BadOption, match="deadline= belongs to depends_on="):
        kitchen.do(kitchen.serve.options(deadline="1m").send_many([{}]))
    kitchen.do(kitchen.serve.options(depends_on=None, deadline=None).send_many([{}]))
