"""Time travel with tasks: handlers run when their messages fall due, with all that real time would have brought."""

import asyncio
from collections.abc import Callable
from contextvars import ContextVar
from datetime import timedelta
from typing import Any

import pytest

from bide import (
    AsyncDelivery,
    AsyncQueue,
    BadMessage,
    Bury,
    ConfigError,
    Delivery,
    ManualClock,
    Queue,
    Retry,
    Snooze,
    current,
    steps,
)
from bide.queue.deliveries import internals
from bide.testing import Handled

Do = Callable[[Any], Any]


class Diary:
    """When handlers were called, in seconds since the start."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.start = clock.now_ms
        self.lines: list[tuple[float, Any]] = []

    def note(self, what: Any) -> None:
        self.lines.append(((self.clock.now_ms - self.start) / 1000, what))


@pytest.fixture
def diary(clock: ManualClock) -> Diary:
    return Diary(clock)


def outcomes(handled: list[Handled]) -> list[tuple[str, str]]:
    return [(each.topic, each.outcome) for each in handled]


def sync_of(queue: Any) -> Queue:
    found: Queue = queue if isinstance(queue, Queue) else queue.sync
    return found


def aio_of(queue: Any) -> AsyncQueue:
    found: AsyncQueue = queue if isinstance(queue, AsyncQueue) else queue.aio
    return found


def test_handlers_run_in_due_order(queue: Any, do: Do, diary: Diary, coloured: Any) -> None:
    one = queue.task("one")(coloured(diary.note))
    two = queue.task("two")(coloured(diary.note))
    ids = [
        do(task.after(delay).send(order)).id for task, delay, order in [(one, "10m", "c"), (two, "5m", "b"), (one, "1ms", "a")]
    ]
    do(one.after("1h").send("too late"))
    handled = do(queue.testing.advance("15m"))
    assert handled == [Handled("one", ids[2], "done"), Handled("two", ids[1], "done"), Handled("one", ids[0], "done")]
    assert diary.lines == [(0.001, "a"), (300, "b"), (600, "c")]
    assert diary.clock.now_ms == diary.start + 900_000


def test_what_is_due_at_once_runs_in_the_order_in_which_it_was_sent(queue: Any, do: Do, diary: Diary, coloured: Any) -> None:
    tasks = [queue.task(topic)(coloured(diary.note)) for topic in "edcbafgh"]
    order = [3, 1, 7, 0, 5, 2, 6, 4, 1, 3]
    sent = [do(tasks[number].send(place)) for place, number in enumerate(order)]
    assert [each.id for each in do(queue.testing.advance(0))] == [each.id for each in sent]
    assert [what for _, what in diary.lines] == list(range(len(order)))


def test_of_several_topics_what_was_due_first_goes_first(queue: Any, do: Do, diary: Diary, clock: ManualClock) -> None:
    for topic in "cba":
        queue.task(topic)(diary.note)
    for topic, delay in [("a", "3s"), ("b", "1s"), ("c", "2s"), ("a", "4s"), ("c", "1s")]:
        do(queue.send(topic, {"what": topic + delay}, delay=delay))
    clock.advance(10)
    do(queue.testing.advance(0))
    assert [what for _, what in diary.lines] == ["b1s", "c1s", "c2s", "a3s", "a4s"]


def test_what_a_handler_sends_comes_after_what_was_due(queue: Any, do: Do, diary: Diary) -> None:
    def first(order: int) -> None:
        diary.note(order)
        if order < 4:
            again.send(order + 2)

    again = queue.task("b")(first).on(sync_of(queue))
    second = queue.task("a")(diary.note)
    do(queue.send("b", {"order": 1}))
    do(second.send(2))
    do(queue.testing.advance(0))
    assert [what for _, what in diary.lines] == [1, 2, 3, 5]


def test_messages_without_a_task_are_told_in_the_order_of_sending(queue: Any, do: Do) -> None:
    sent = [do(queue.send(topic, delay="1m")) for topic in "cabacb"]
    assert [each.id for each in do(queue.testing.advance("1m"))] == [each.id for each in sent]


@pytest.mark.parametrize("back", [30, 300, 3_600])
def test_after_the_clock_was_set_back_each_message_is_handled_when_a_worker_would_have_it(
    queue: Any, do: Do, diary: Diary, clock: ManualClock, back: int
) -> None:
    """Delays then go at half their speed, and instants by the clock."""
    task = queue.task("t")(diary.note)
    do(queue.testing.advance(back))
    clock.advance(-back)
    do(task.at(clock.now() + timedelta(seconds=29)).send("at 29"))
    for seconds in (10, 14):
        do(task.after(seconds).send(f"after {seconds}"))
    do(queue.send("untold", delay=5))
    do(queue.send("held"))
    [held] = do(queue.receive("held", lease=8))
    internals(held).mark_ended()
    handled = do(queue.testing.advance("1m"))
    assert [each.topic for each in handled] == ["untold", "held", "t", "t", "t"]
    assert diary.lines == [(20, "after 10"), (28, "after 14"), (29, "at 29")]
    assert do(queue.testing.advance("1d")) == []


def test_in_time_travel_the_default_waits_are_not_spread(queue: Any, do: Do, diary: Diary, coloured: Any) -> None:
    def handle() -> None:
        diary.note(current().attempt)
        raise ValueError("no tape")

    task = queue.task("t", max_attempts=5)(coloured(handle))
    do(task.send())
    for seconds in (0, 1, 2, 4, 8):
        assert len(do(queue.testing.advance(seconds, raise_errors=False))) == 1
    assert diary.lines == [(0, 1), (1, 2), (3, 3), (7, 4), (15, 5)]


def test_a_function_as_backoff_says_seconds(queue: Any, do: Do, diary: Diary) -> None:
    def handle() -> None:
        diary.note(current().attempt)
        raise ValueError("no tape")

    do(queue.task("t", backoff=lambda attempt: 30 * attempt)(handle).send())
    do(queue.testing.advance("1h", raise_errors=False))
    assert diary.lines == [(0, 1), (30, 2), (90, 3)]


def test_advance_by_nothing_handles_what_is_due(queue: Any, do: Do, diary: Diary, coloured: Any) -> None:
    task = queue.task("t")(coloured(diary.note))
    do(task.send("now"))
    do(task.after("1ms").send("later"))
    assert outcomes(do(queue.testing.advance(0))) == [("t", "done")]
    assert do(queue.testing.advance(0)) == []
    assert diary.lines == [(0, "now")]


def test_what_is_due_at_the_very_end_is_handled(queue: Any, do: Do, diary: Diary) -> None:
    task = queue.task("t")(diary.note)
    do(task.after("15m").send(1))
    assert do(queue.testing.advance("14m 59.999s")) == []
    assert outcomes(do(queue.testing.advance("1ms"))) == [("t", "done")]


def test_priority_counts_among_what_is_due(queue: Any, do: Do, diary: Diary) -> None:
    task = queue.task("t")(diary.note)
    for priority in ("low", "normal", "high"):
        do(task.after("1s", priority=priority).send(priority))
    do(queue.testing.advance("1s"))
    assert diary.lines == [(1, "high"), (1, "normal"), (1, "low")]


def test_a_failed_attempt_comes_again_after_the_backoff_until_it_is_dead(
    queue: Any, do: Do, diary: Diary, coloured: Any
) -> None:
    def handle(order: int) -> None:
        diary.note(current().attempt)
        raise ValueError("no tape")

    task = queue.task("t", max_attempts=4, backoff=steps("1s", "10s"))(coloured(handle))
    sent = do(task.after("1m").send(1))
    handled = do(queue.testing.advance("1h", raise_errors=False))
    assert [each.outcome for each in handled] == ["retry", "retry", "retry", "dead"]
    assert {(each.id, str(each.error)) for each in handled} == {(sent.id, "no tape")}
    assert diary.lines == [(60, 1), (61, 2), (71, 3), (81, 4)]
    assert do(queue.get(sent)).last_error == "ValueError: no tape"


def test_a_retry_may_succeed(queue: Any, do: Do, diary: Diary, coloured: Any) -> None:
    def handle() -> None:
        diary.note(current().attempt)
        if current().attempt < 3:
            raise Retry("30s")

    task = queue.task("t")(coloured(handle))
    do(task.send())
    assert [each.outcome for each in do(queue.testing.advance("1h"))] == ["retry", "retry", "done"]
    assert diary.lines == [(0, 1), (30, 2), (60, 3)]


def test_a_snooze_is_no_attempt(queue: Any, do: Do, diary: Diary, coloured: Any) -> None:
    def handle() -> None:
        diary.note(current().attempt)
        if len(diary.lines) < 5:
            raise Snooze("10s")

    task = queue.task("t", max_attempts=1)(coloured(handle))
    do(task.after("1m").send())
    assert [each.outcome for each in do(queue.testing.advance("1h"))] == ["snoozed"] * 4 + ["done"]
    assert diary.lines == [(60, 1), (70, 1), (80, 1), (90, 1), (100, 1)]


def test_a_snooze_goes_on_no_longer_than_max_wait(queue: Any, do: Do, diary: Diary, coloured: Any) -> None:
    def handle() -> None:
        diary.note("not yet")
        raise Snooze("20s", max_wait="1m")

    task = queue.task("t")(coloured(handle))
    sent = do(task.after("1h").send())
    handled = do(queue.testing.advance("2h"))
    assert [each.outcome for each in handled] == ["snoozed"] * 3 + ["dead"]
    assert [at for at, _ in diary.lines] == [3600, 3620, 3640, 3660]
    assert do(queue.get(sent)).last_error == "put off for 60 s, and max_wait is 60 s"


def test_max_wait_counts_from_the_first_attempt_and_not_from_an_outage_before_it(queue: Any, do: Do, coloured: Any) -> None:
    def handle() -> None:
        raise Snooze("20s", max_wait="1m")

    # Given a message that nobody could receive for an hour
    task = queue.task("t")(coloured(handle))
    do(queue.pause("t"))
    sent = do(task.send())
    assert do(queue.testing.advance("1h")) == []
    do(queue.resume("t"))
    # Then it is put off as long as any other
    assert [each.outcome for each in do(queue.testing.advance("1h"))] == ["snoozed"] * 3 + ["dead"]
    # And a requeued one again
    assert do(queue.requeue("t", ids=[sent.id])) == 1
    assert [each.outcome for each in do(queue.testing.advance("1h"))] == ["snoozed"] * 3 + ["dead"]


def test_bury_is_the_end(queue: Any, do: Do, coloured: Any) -> None:
    def handle() -> None:
        raise Bury("no such order")

    sent = do(queue.task("t")(coloured(handle)).send())
    [handled] = do(queue.testing.advance("1h"))
    assert (handled.outcome, str(handled.error)) == ("dead", "no such order")
    info = do(queue.get(sent))
    assert (info.state, info.last_error, info.attempt) == ("dead", "no such order", 1)


def test_a_requeued_message_is_handled(queue: Any, do: Do, coloured: Any) -> None:
    broken = True

    def handle() -> None:
        if broken:
            raise Bury("closed")

    queue.task("t")(coloured(handle))
    sent = do(queue.send("t"))
    assert outcomes(do(queue.testing.advance(0))) == [("t", "dead")]
    broken = False
    do(queue.requeue("t", [sent.id]))
    assert outcomes(do(queue.testing.advance(0))) == [("t", "done")]


def test_what_expires_on_the_way_is_not_handled(queue: Any, do: Do, diary: Diary) -> None:
    task = queue.task("t")(diary.note)
    do(queue.pause("t"))
    do(task.after("1s", expires_in="1m").send(1))
    do(queue.testing.advance("1h"))
    do(queue.resume("t"))
    assert do(queue.testing.advance("1h")) == []
    assert diary.lines == []


def test_a_retry_that_comes_after_its_expiry_is_told_as_expired(queue: Any, do: Do, diary: Diary) -> None:
    def handle() -> None:
        diary.note(1)
        raise Retry("2m")

    do(queue.task("t")(handle).after("1s", expires_in="1m").send())
    handled = do(queue.testing.advance("1h"))
    assert [each.outcome for each in handled] == ["expired"]
    assert diary.lines == [(1, 1)]


def test_what_a_sync_handler_sends_is_handled_on_the_way(queue: Any, do: Do, diary: Diary) -> None:
    def remind(order: int) -> None:
        diary.note(("remind", order))

    def cancel(order: int) -> None:
        diary.note(("cancel", order))
        reminders.send(order)
        reminders.after("5m").send(order + 1)

    reminders = queue.task("remind")(remind).on(sync_of(queue))
    do(queue.task("cancel")(cancel).after("10m").send(1))
    assert outcomes(do(queue.testing.advance("15m"))) == [("cancel", "done"), ("remind", "done"), ("remind", "done")]
    assert diary.lines == [(600, ("cancel", 1)), (600, ("remind", 1)), (900, ("remind", 2))]


def test_what_an_async_handler_sends_is_handled_on_the_way(queue: Any, do: Do, diary: Diary) -> None:
    async def remind(order: int) -> None:
        diary.note(("remind", order))

    async def cancel(order: int) -> None:
        diary.note(("cancel", order))
        await reminders.send(order)
        await asyncio.gather(*(reminders.after(delay).send(order + 1) for delay in ("5m", "6m")))

    reminders = queue.task("remind")(remind).on(aio_of(queue))
    do(queue.task("cancel")(cancel).after("10m").send(1))
    assert outcomes(do(queue.testing.advance("15m"))) == [("cancel", "done"), ("remind", "done"), ("remind", "done")]
    assert diary.lines == [(600, ("cancel", 1)), (600, ("remind", 1)), (900, ("remind", 2))]
    assert outcomes(do(queue.testing.advance("1m"))) == [("remind", "done")], "the loop of the handlers was not kept"


def test_handlers_of_both_colours_take_turns(queue: Any, do: Do, diary: Diary) -> None:
    async def ping(left: int) -> None:
        diary.note(left)
        if left:
            await to_pong.send(left - 1)

    def pong(left: int) -> None:
        diary.note(left)
        if left:
            to_ping.send(left - 1)

    to_ping = queue.task("ping")(ping).on(sync_of(queue))
    to_pong = queue.task("pong")(pong).on(aio_of(queue))
    to_ping.after("1s").send(4)
    handled = do(queue.testing.advance("1s"))
    assert outcomes(handled) == [("ping", "done"), ("pong", "done")] * 2 + [("ping", "done")]
    assert diary.lines == [(1, 4), (1, 3), (1, 2), (1, 1), (1, 0)]


def test_messages_without_a_task_are_ready(queue: Any, do: Do, diary: Diary, coloured: Any) -> None:
    do(queue.task("task")(coloured(diary.note)).after("2m").send(1))
    early, late = do(queue.send("plain", delay="1m")), do(queue.send("plain", delay="3m"))
    handled = do(queue.testing.advance("5m"))
    assert outcomes(handled) == [("plain", "ready"), ("task", "done"), ("plain", "ready")]
    assert [handled[0].id, handled[2].id] == [early.id, late.id]
    assert len(do(queue.receive("plain", limit=5))) == 2


def test_a_paused_topic_waits_until_it_goes_on(queue: Any, do: Do, diary: Diary) -> None:
    task = queue.task("t")(diary.note)
    do(task.after("1m").send(1))
    do(queue.pause("t"))
    assert do(queue.testing.advance("1h")) == []
    do(queue.resume("t"))
    assert outcomes(do(queue.testing.advance(0))) == [("t", "done")]


def test_what_was_cancelled_or_moved_on_the_way_is_not_handled(queue: Any, do: Do, diary: Diary) -> None:
    def pay() -> None:
        sync = cancel.on(sync_of(queue))
        diary.note((bool(sync.cancel(key="1")), bool(sync.reschedule(key="2", delay="10m"))))

    cancel = queue.task("cancel")(diary.note)
    do(cancel.after("10m", key="1").send("one"))
    do(cancel.after("10m", key="2").send("two"))
    do(queue.task("pay")(pay).after("5m").send())
    do(queue.testing.advance("1h"))
    assert diary.lines == [(300, (True, True)), (900, "two")]


def test_a_message_with_other_arguments_is_dead_and_the_rest_goes_on(queue: Any, do: Do, diary: Diary, coloured: Any) -> None:
    def handle(order: int) -> None:
        diary.note(order)

    task = queue.task("t")(coloured(handle))
    do(queue.send("t", {"order": "x"}, delay="1s"))
    do(task.after("2s").send(2))
    bad, good = do(queue.testing.advance("1m", raise_errors=False))
    assert (bad.outcome, good.outcome) == ("dead", "done")
    assert isinstance(bad.error, BadMessage)
    assert diary.lines == [(2, 2)]


def test_the_error_of_a_handler_is_told(queue: Any, do: Do, coloured: Any) -> None:
    fault = KeyError("no such order")

    def handle() -> None:
        raise fault

    do(queue.task("t", max_attempts=1)(coloured(handle)).send())
    [handled] = do(queue.testing.advance(0, raise_errors=False))
    assert handled.error is fault


@pytest.mark.parametrize("error", [StopIteration(), StopAsyncIteration(), SystemExit(3), asyncio.CancelledError()], ids=repr)
def test_an_odd_error_is_a_failed_attempt_as_well(queue: Any, do: Do, coloured: Any, error: BaseException) -> None:
    def handle() -> None:
        raise error

    do(queue.task("t", max_attempts=2, backoff=steps("1s"))(coloured(handle)).send())
    assert outcomes(do(queue.testing.advance("1m", raise_errors=False))) == [("t", "retry"), ("t", "dead")]


def test_a_stop_from_outside_ends_the_travel(queue: Any, do: Do, coloured: Any) -> None:
    class Stop(BaseException):
        pass

    def handle() -> None:
        raise Stop

    do(queue.task("t")(coloured(handle)).send())
    with pytest.raises(Stop):
        do(queue.testing.advance(0))


def test_a_travel_that_is_cancelled_stops(do: Do) -> None:
    async def scenario() -> None:
        begun = asyncio.Event()

        async def handle() -> None:
            begun.set()
            await asyncio.Event().wait()

        queue = AsyncQueue("memory://", clock=ManualClock())
        await queue.task("t")(handle).send()
        travel = asyncio.create_task(queue.testing.advance(0))
        await begun.wait()
        travel.cancel()
        with pytest.raises(asyncio.CancelledError):
            await travel
        await queue.close()

    do(scenario())


def test_a_coroutine_that_nobody_awaits_is_no_success(queue: Any, do: Do) -> None:
    async def work() -> None:
        raise AssertionError("was run")

    def hands_on() -> Any:
        return work()

    do(queue.task("t", max_attempts=1)(hands_on).send())
    [handled] = do(queue.testing.advance(0, raise_errors=False))
    assert handled.outcome == "dead"
    assert isinstance(handled.error, ConfigError)
    assert "returned a coroutine, which nobody awaits" in str(handled.error)


def test_what_would_never_end_is_told(queue: Any, do: Do, monkeypatch: pytest.MonkeyPatch) -> None:
    def handle() -> None:
        raise Snooze(0)

    for colour in ("aio", "sync"):
        monkeypatch.setattr(f"bide.queue.{colour}.travel.MOST_AT_ONCE", 50)
    do(queue.task("again")(handle).send())
    with pytest.raises(ConfigError, match=r"50 messages were handled without time passing.* Does again snooze for no time"):
        do(queue.testing.advance("1h"))


def test_a_message_that_comes_back_at_once_for_ever_is_told(queue: Any, do: Do) -> None:
    def handle() -> None:
        raise Snooze(0)

    do(queue.task("again")(handle).send())
    with pytest.raises(ConfigError, match=r"A message of again was handled 2,000 times without time passing.* a delay"):
        do(queue.testing.advance("1h"))


def test_sync_travel_inside_a_loop_refuses_async_handlers_and_keeps_the_message(clock: ManualClock) -> None:
    async def handle() -> None: ...

    async def scenario(queue: Queue) -> None:
        with pytest.raises(ConfigError, match=r"await queue\.aio\.testing\.advance"):
            queue.testing.advance("1m")
        assert queue.stats("t").ready == 1
        assert outcomes(await queue.aio.testing.advance("1m")) == [("t", "done")]
        await queue.aio.close()

    with Queue("memory://", clock=clock) as queue:
        queue.task("t")(handle).send()
        asyncio.run(scenario(queue))


# current()


def test_outside_a_handler_there_is_no_current_delivery(queue: Any, do: Do, coloured: Any) -> None:
    with pytest.raises(ConfigError, match="no message is being handled here"):
        current()
    do(queue.task("t")(coloured(lambda: None)).send())
    do(queue.testing.advance(0))
    with pytest.raises(ConfigError, match="no message is being handled here"):
        current()


def test_current_is_the_delivery_in_the_colour_of_the_handler(queue: Any, do: Do) -> None:
    seen: dict[str, Any] = {}

    async def in_async() -> None:
        seen["async"] = current()
        await current().extend("5m")
        await asyncio.to_thread(lambda: seen.update(thread=current()))

    def in_sync() -> None:
        seen["sync"] = current()
        current().extend("5m")

    sent = [do(queue.task(topic)(handler).after("1s", key="k").send()) for topic, handler in [("a", in_async), ("b", in_sync)]]
    do(queue.testing.advance("1m"))
    assert (type(seen["async"]), type(seen["sync"])) == (AsyncDelivery, Delivery)
    assert seen["thread"] is seen["async"]
    assert [seen["async"].id, seen["sync"].id] == [each.id for each in sent]
    assert {(each.key, each.attempt, each.lateness, each.expired) for each in seen.values()} == {("k", 1, 0.0, False)}


@pytest.mark.parametrize(("verb", "state"), [("ack", None), ("bury", "dead"), ("retry", "scheduled"), ("release", "scheduled")])
def test_a_handler_may_end_its_delivery_by_itself(queue: Any, do: Do, verb: str, state: str | None) -> None:
    given = {"ack": (), "bury": ("no such order",), "retry": ("2h",), "release": ("2h",)}[verb]

    async def in_async() -> None:
        await getattr(current(), verb)(*given)

    def in_sync() -> None:
        getattr(current(), verb)(*given)
        raise ValueError("too late to say so")

    for topic, handler in [("a", in_async), ("b", in_sync)]:
        sent = do(queue.task(topic)(handler).send())
        [handled] = do(queue.testing.advance("1m", raise_errors=False))
        assert handled.outcome == "ended"
        info = do(queue.get(sent))
        assert (info and info.state) == state


def test_what_a_handler_sets_in_its_context_stays_there(queue: Any, do: Do, coloured: Any) -> None:
    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen = []

    def handle(name: str) -> None:
        seen.append(tenant.get())
        tenant.set(name)

    task = queue.task("t")(coloured(handle))
    do(task.send_many([{"name": "a"}, {"name": "b"}]))
    do(queue.testing.advance(0))
    assert (seen, tenant.get()) == (["nobody", "nobody"], "nobody")


def test_a_queue_in_a_file_travels_too(make_queue: Any, clock: ManualClock, do: Do, diary: Diary, tmp_path: Any) -> None:
    queue = make_queue(f"sqlite:///{tmp_path}/shop.db", clock=clock)

    async def in_async(order: int) -> None:
        diary.note(order)
        await to_sync.after("1m").send(order + 1)

    def in_sync(order: int) -> None:
        diary.note(order)

    to_sync = queue.task("sync")(in_sync).on(aio_of(queue))
    do(queue.task("async")(in_async).after("1m").send(1))
    assert outcomes(do(queue.testing.advance("1h"))) == [("async", "done"), ("sync", "done")]
    assert diary.lines == [(60, 1), (120, 2)]


def test_what_a_dead_worker_held_is_handled_when_its_lease_ends(bide_queue: Queue) -> None:
    began = bide_queue.session.setup.now_ms()
    seen: list[int] = []
    bide_queue.send("order.pack", {"order": 42})
    bide_queue.receive("order.pack", lease="10s")  # and is never heard of again

    @bide_queue.task("order.pack")
    def pack(order: int) -> None:
        seen.append(bide_queue.session.setup.now_ms() - began)

    assert [each.outcome for each in bide_queue.testing.advance("5m")] == ["done"]
    assert seen == [10_000]


def test_what_a_handler_sends_to_a_topic_without_a_task_is_told(bide_queue: Queue) -> None:
    @bide_queue.task("order.pack")
    def pack(order: int) -> None:
        bide_queue.send("order.packed", order)

    pack.send(42)
    assert [(each.topic, each.outcome) for each in bide_queue.testing.advance(0)] == [
        ("order.pack", "done"),
        ("order.packed", "ready"),
    ]


def test_what_was_ready_before_and_has_no_task_is_not_told_again(bide_queue: Queue) -> None:
    bide_queue.send("order.pack", 42)
    assert bide_queue.testing.advance("1h") == []
