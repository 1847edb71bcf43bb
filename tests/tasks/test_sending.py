"""Sending a task's messages: the same message whichever way, options, keys, many at once, other queues."""

import json
import re
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from bide import (
    AsyncTask,
    BadMessage,
    BadOption,
    BadTime,
    CancelResult,
    Exists,
    ManualClock,
    Outgoing,
    RescheduleResult,
    Task,
    TooLarge,
    Unsupported,
)
from bide.clock import moment
from bide.core.codec import JSON
from bide.engines.base import Ref

Do = Callable[[Any], Any]


def cancel_unpaid(order: int, *, reason: str = "unpaid") -> None: ...


@pytest.fixture
def task(queue: Any) -> Any:
    return queue.task("order.cancel", max_attempts=5)(cancel_unpaid)


def stored(queue: Any, do: Do, sent: Any) -> Any:
    """As the engine has it, in bytes."""
    [found] = do(do(queue.session.engine()).get([Ref(id=sent.id)]))
    return found


def test_a_task_and_its_topic_send_the_same_message(queue: Any, task: Any, do: Do) -> None:
    ways = [
        do(queue.send("order.cancel", {"order": 42, "reason": "late"})),
        do(task.send(order=42, reason="late")),
        do(task.send(42, reason="late")),
        do(task.send(reason="late", order=42)),
        do(task.send_many([{"order": 42, "reason": "late"}]))[0],
        do(queue.send_many("order.cancel", [{"order": 42, "reason": "late"}]))[0],
    ]
    found = [stored(queue, do, sent) for sent in ways]
    assert {each.body for each in found} == {JSON.encode({"order": 42, "reason": "late"})}
    assert {each.max_attempts for each in found} == {5}
    assert {(each.level, each.key, tuple(each.headers), each.due) for each in found} == {(1, None, (), found[0].due)}


def test_a_topic_without_a_task_has_three_attempts_as_ever(queue: Any, task: Any, do: Do) -> None:
    assert stored(queue, do, do(queue.send("order.remind"))).max_attempts == 3


def test_what_a_send_says_of_attempts_goes_before_what_the_task_says(queue: Any, task: Any, do: Do) -> None:
    assert stored(queue, do, do(queue.send("order.cancel", {"order": 1}, max_attempts=2))).max_attempts == 2
    assert stored(queue, do, do(task.options(max_attempts=1).send(1))).max_attempts == 1


@pytest.mark.parametrize(
    ("options", "seen"),
    [
        ({"delay": "15m"}, {"wait": 900_000}),
        ({"key": "order:42"}, {"key": "order:42"}),
        ({"priority": "high"}, {"priority": "high"}),
        ({"delay": "1s", "expires_in": "1m"}, {"wait": 1_000, "life": 60_000}),
        ({"max_attempts": 9}, {"max_attempts": 9}),
        ({"headers": {"trace": "a1"}}, {"headers": {"trace": "a1"}}),
    ],
    ids=str,
)
def test_each_option_reaches_the_message(
    queue: Any, task: Any, do: Do, clock: ManualClock, options: dict[str, Any], seen: dict[str, Any]
) -> None:
    chosen = task.options(**options)
    for sent in (do(chosen.send(42)), do(chosen.options(key="another").send_many([{"order": 42}]))[0]):
        info = do(queue.get(sent))
        assert info.body == {"order": 42}
        facts = {
            "wait": info.due - clock.now_ms,
            "life": info.expires and info.expires - info.due,
            "key": info.key and "order:42",
            **{name: getattr(info, name) for name in ("priority", "max_attempts", "headers")},
        }
        assert {name: facts[name] for name in seen} == seen


def test_after_and_at_say_when(queue: Any, task: Any, do: Do, clock: ManualClock) -> None:
    when = datetime(2026, 1, 2, 9, tzinfo=UTC)
    assert do(task.after("15m").send(1)).due == clock.now_ms + 900_000
    assert do(task.after(timedelta(hours=1)).send(1)).due == clock.now_ms + 3_600_000
    assert do(task.at(when).send(1)).due_at == when
    assert do(task.options(at=when).send(1)).due_at == when
    assert do(task.after(0).send(1)).due == clock.now_ms


def test_the_last_word_on_the_time_counts(queue: Any, task: Any, do: Do, clock: ManualClock) -> None:
    when = datetime(2026, 1, 2, 9, tzinfo=UTC)
    assert do(task.after("15m").at(when).send(1)).due_at == when
    assert do(task.at(when).after("15m").send(1)).due == clock.now_ms + 900_000
    assert do(task.after("1h").after("15m").send(1)).due == clock.now_ms + 900_000


def test_options_make_a_new_task_and_leave_the_old_one_as_it_was(queue: Any, task: Any, do: Do, clock: ManualClock) -> None:
    soon = task.options(priority="high")
    later = soon.after("15m", key="order:42")
    keyed = task.at(datetime(2026, 1, 2, tzinfo=UTC), key="other")
    for changed in (soon, later, keyed):
        assert changed is not task
        assert (type(changed), changed.topic, changed.definition) == (type(task), task.topic, task.definition)
    assert (do(queue.get(do(later.send(1)))).priority, do(later.get(key="order:42")).key) == ("high", "order:42")
    plain, quick = do(queue.get(do(task.send(1)))), do(queue.get(do(soon.send(1))))
    assert (plain.key, plain.priority, plain.due) == (None, "normal", clock.now_ms)
    assert (quick.key, quick.priority, quick.due) == (None, "high", clock.now_ms)


@pytest.mark.parametrize("way", [lambda t: t.options(kye="k"), lambda t: t.after("1s", kye="k"), lambda t: t.at(None, kye="k")])
def test_an_option_that_there_is_not_is_refused(task: Any, way: Any) -> None:
    with pytest.raises(BadOption, match=r"kye is no option of a send\. There is: at, connection, .*, delay, .*go into send"):
        way(task)


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        ({"delay": "soon"}, BadTime),
        ({"delay": "1s", "at": datetime(2030, 1, 1, tzinfo=UTC)}, BadTime),
        ({"at": datetime(2030, 1, 1)}, BadTime),
        ({"expires_in": 0}, BadTime),
        ({"key": ""}, BadOption),
        ({"if_exists": "perhaps"}, BadOption),
        ({"priority": "urgent"}, BadOption),
        ({"max_attempts": 0}, BadOption),
        ({"headers": {"a": 1}}, BadOption),
        ({"operation": ""}, BadOption),
    ],
    ids=str,
)
def test_options_that_can_not_be_used_are_refused_and_nothing_is_stored(
    queue: Any, task: Any, do: Do, options: dict[str, Any], refusal: type[Exception]
) -> None:
    with pytest.raises(refusal):
        do(task.options(**options).send(42))
    with pytest.raises(refusal):
        do(task.options(**options).send_many([{"order": 42}]))
    assert do(queue.stats()).pending == 0


@pytest.mark.parametrize(
    ("way", "said"),
    [
        (lambda t: t.after("1h", at=datetime(2026, 1, 2, tzinfo=UTC)), r"after\(\) says when already: leave at= out"),
        (lambda t: t.at(datetime(2026, 1, 2, tzinfo=UTC), delay="1h"), r"at\(\) says when already: leave delay= out"),
    ],
)
def test_a_second_time_is_refused(task: Any, way: Any, said: str) -> None:
    with pytest.raises(BadOption, match=said):
        way(task)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"delay": "15m"}, r"delay is said before that: \w+\.after\('15m'\)\.send\(…\)"),
        ({"countdown": 5}, r"countdown is said before that: \w+\.after\(5\)\.send\(…\)"),
        ({"eta": None}, r"eta is said before that: \w+\.at\(None\)\.send\(…\)"),
        ({"key": "k"}, r"key is said before that: \w+\.options\(key=…\)\.send\(…\)"),
    ],
)
def test_an_option_among_the_arguments_is_refused_with_what_to_write(
    queue: Any, task: Any, do: Do, options: Any, said: str
) -> None:
    with pytest.raises(BadMessage, match=said):
        do(task.send(1, **options))
    assert do(queue.stats()).pending == 0


def test_a_message_can_be_named_by_what_send_gave(queue: Any, task: Any, do: Do, clock: ManualClock) -> None:
    sent = do(task.after("1h").send(1))
    assert do(task.reschedule(sent, delay="2h")) is RescheduleResult.MOVED
    assert do(task.get(sent)).due == clock.now_ms + 7_200_000
    assert do(task.cancel(sent.id)) is CancelResult.CANCELLED
    assert do(task.get(sent)) is None
    for nothing in (task.cancel, task.get):
        with pytest.raises(BadOption, match=r"cancel\(sent\)"):
            do(nothing())
    with pytest.raises(BadOption, match="Give one"):
        do(task.cancel(sent, key="k"))


def test_the_arguments_are_encoded_once(make_queue: Any, do: Do) -> None:
    class Counting:
        encoded = 0

        def encode(self, body: Any, /) -> bytes:
            self.encoded += 1
            return json.dumps(body).encode()

        def decode(self, raw: bytes, /) -> Any:
            return json.loads(raw)

    codec = Counting()
    handle = make_queue(codec=codec).task("t")(lambda order: None)
    do(handle.send(1))
    do(handle.send_many([{"order": 2}, {"order": 3}]))
    assert codec.encoded == 3


def test_a_key_that_is_taken_does_what_if_exists_says(task: Any, do: Do) -> None:
    keyed = task.after("15m", key="order:42")
    first = do(keyed.send(1))
    assert [do(keyed.options(if_exists=each).send(2)).outcome for each in ("keep", "replace", "later")] == [
        "kept",
        "replaced",
        "postponed",
    ]
    assert do(task.get(key="order:42")).body == {"order": 2}
    with pytest.raises(Exists) as taken:
        do(keyed.options(if_exists="error").send(3))
    assert taken.value.sent.id == first.id


def test_an_operation_sends_once(queue: Any, task: Any, do: Do) -> None:
    named = task.options(operation="checkout-7f3a")
    assert do(named.send(1)).id == do(named.send(1)).id
    first, again = (do(named.options(operation="many").send_many([{"order": 1}, {"order": 2}])) for _ in range(2))
    assert [each.id for each in first] == [each.id for each in again]
    assert do(queue.stats("order.cancel")).pending == 3


# by key


def test_what_has_not_begun_can_be_seen_moved_and_cancelled_by_its_key(task: Any, do: Do, clock: ManualClock) -> None:
    when = datetime(2026, 1, 2, tzinfo=UTC)
    sent = do(task.after("15m", key="order:42").send(order=42))
    assert do(task.get(key="order:42")).id == sent.id
    assert do(task.reschedule(key="order:42", delay="1h")) is RescheduleResult.MOVED
    assert do(task.get(key="order:42")).due == clock.now_ms + 3_600_000
    assert do(task.reschedule(key="order:42", at=when))
    assert do(task.get(key="order:42")).due_at == when
    assert do(task.cancel(key="order:42")) is CancelResult.CANCELLED
    assert do(task.get(key="order:42")) is None
    assert do(task.cancel(key="order:42")) is CancelResult.GONE
    assert do(task.reschedule(key="order:42", delay=0)) is RescheduleResult.GONE


def test_a_key_belongs_to_the_tasks_topic(queue: Any, task: Any, do: Do) -> None:
    do(queue.send("order.remind", key="order:42"))
    assert do(task.get(key="order:42")) is None
    assert not do(task.cancel(key="order:42"))


# many


def test_many_are_sent_with_the_options_of_the_task(queue: Any, task: Any, do: Do, clock: ManualClock) -> None:
    chosen = task.after("15m", priority="low", headers={"a": "b"})
    sent = do(chosen.send_many({"order": number} for number in range(3)))
    infos = [do(queue.get(each)) for each in sent]
    assert [info.body for info in infos] == [{"order": number} for number in range(3)]
    assert {(info.due, info.priority, info.headers["a"], info.max_attempts) for info in infos} == {
        (clock.now_ms + 900_000, "low", "b", 5)
    }


@pytest.mark.parametrize("if_exists", ["keep", "replace"])
def test_many_can_not_share_a_key(queue: Any, task: Any, do: Do, if_exists: Any) -> None:
    chosen = task.options(key="k", if_exists=if_exists, delay="1h")
    with pytest.raises(BadOption, match=r"A key belongs to one message at a time, and these are 3\."):
        do(chosen.send_many({"order": order} for order in (1, 2, 3)))
    assert do(queue.stats()).pending == 0
    assert do(chosen.send_many([])) == []
    [only] = do(chosen.send_many([{"order": 1}]))
    assert do(task.get(key="k")).id == only.id
    assert len(do(chosen.options(key=None).send_many([{"order": 1}, {"order": 2}]))) == 2


@pytest.mark.parametrize("by", ["task", "queue"])
def test_many_may_have_keys_and_times_of_their_own(queue: Any, task: Any, do: Do, clock: ManualClock, by: str) -> None:
    items = [Outgoing({"order": order}, key=f"order:{order}", delay=60 * order) for order in (1, 2)]
    do(task.send_many(items) if by == "task" else queue.send_many(task.topic, items))
    infos = [do(task.get(key=f"order:{order}")) for order in (1, 2)]
    assert [info.body for info in infos] == [{"order": 1}, {"order": 2}]
    assert [info.due - clock.now_ms for info in infos] == [60_000, 120_000]


def test_of_many_what_an_item_says_goes_before_what_the_task_says(queue: Any, task: Any, do: Do, clock: ManualClock) -> None:
    chosen = task.at(moment(clock.now_ms + 5_000), key="k", priority="low", max_attempts=7)
    own = Outgoing({"order": 2}, delay="1m", key="own", priority="high", headers={"a": "b"}, max_attempts=2)
    sent = do(chosen.send_many([{"order": 1}, own, Outgoing({"order": 3}, at=moment(clock.now_ms + 9_000), key="third")]))
    infos = [do(queue.get(each)) for each in sent]
    assert [info.due - clock.now_ms for info in infos] == [5_000, 60_000, 9_000]
    assert [info.key for info in infos] == ["k", "own", "third"]
    assert [info.priority for info in infos] == ["low", "high", "low"]
    assert [info.max_attempts for info in infos] == [7, 2, 7]
    assert [dict(info.headers) for info in infos] == [{}, {"a": "b"}, {}]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (Outgoing({"order": "x"}, delay=1), "Item 1: cancel_unpaid"),
        (Outgoing([1]), "Item 1: send_many takes the arguments of each by name, and this is a list"),
        (Outgoing({"order": 2}, delay=1, at=moment(2**40), key="own"), "Item 1: Both delay and at were given"),
        (Outgoing({"order": 2}, key="k"), "A key belongs to one message"),
    ],
)
def test_an_item_with_wrong_options_is_refused_before_the_first_is_sent(
    queue: Any, task: Any, do: Do, item: Outgoing, text: str
) -> None:
    with pytest.raises(BadMessage, match=f"^{re.escape(text)}"):
        do(task.options(key="k").send_many([{"order": 1}, item]))
    assert do(queue.stats()).pending == 0


def test_items_that_are_merged_are_lists_whoever_says_merge(queue: Any, do: Do) -> None:
    @queue.task("likes")
    def store(users: list[int]) -> None: ...

    do(store.send_many([Outgoing({"users": [user]}, key="k", if_exists="merge") for user in (1, 2)]))
    assert do(store.get(key="k")).body == [{"users": [1]}, {"users": [2]}]

    @queue.task("other")
    def other(user: int) -> None: ...

    with pytest.raises(BadMessage, match="Item 0: "):
        do(other.send_many([Outgoing({"user": 1}, key="k", if_exists="merge")]))


def test_many_may_be_none(task: Any, do: Do) -> None:
    assert do(task.send_many([])) == []


@pytest.mark.parametrize(
    ("items", "text"),
    [
        ([{"order": 1}, {"order": "x"}], "Item 1: cancel_unpaid(order: int, "),
        ([{"order": 1}, {}], "Item 1: "),
        ([{"order": 1}, 42], "Item 1: send_many takes the arguments of each by name"),
        ([{1: 2}], "Item 0: "),
        ({"order": 1}, "send_many takes a list, and this is a dict"),
        ("order", "send_many takes a list, and this is a str"),
        (42, "send_many takes a list, and this is a int"),
    ],
    ids=str,
)
def test_of_many_all_are_checked_before_the_first_is_sent(queue: Any, task: Any, do: Do, items: Any, text: str) -> None:
    with pytest.raises(BadMessage) as refused:
        do(task.send_many(items))
    assert str(refused.value).startswith(text)
    assert do(queue.stats()).pending == 0


def test_one_of_many_that_is_too_large_is_named(make_queue: Any, do: Do) -> None:
    queue = make_queue(max_body=100)
    with pytest.raises(TooLarge, match=r"^Item 1: "):
        do(queue.task("t")(lambda note: None).send_many([{"note": ""}, {"note": "x" * 100}]))


def test_the_connection_in_the_options_is_for_every_verb_and_an_engine_without_transactions_refuses_it(
    queue: Any, task: Any, do: Do
) -> None:
    joining = task.options(connection=object())
    do(task.options(key="k", delay="1h").send(1))
    verbs: list[Callable[[], Any]] = [
        lambda: joining.send(1),
        lambda: joining.send_many([{"order": 1}]),
        lambda: joining.cancel(key="k"),
        lambda: joining.reschedule(key="k", delay=1),
    ]
    for verb in verbs:
        with pytest.raises(Unsupported, match="connection="):
            do(verb())
    assert do(queue.stats()).scheduled == 1


# where to


def test_on_gives_the_task_in_the_colour_of_the_queue(queue: Any, task: Any, do: Do) -> None:
    sync, aio = (queue.sync, queue) if hasattr(queue, "sync") else (queue, queue.aio)
    chosen = task.after("15m", key="order:42")
    each: list[tuple[Any, type[Any]]] = [(sync, Task), (aio, AsyncTask)]
    for twin, colour in each:
        turned = chosen.on(twin)
        assert type(turned) is colour
        assert (turned.topic, turned(42)) == ("order.cancel", None)
    sent = chosen.on(sync).send(42)
    assert do(chosen.on(aio).send(42)).id == sent.id
    assert do(queue.get(sent)).max_attempts == 5


def test_on_another_queue_the_message_is_the_same(make_queue: Any, task: Any, queue: Any, do: Do, clock: ManualClock) -> None:
    other = make_queue(clock=clock)
    sent = do(task.after("15m").on(other).send(42))
    assert do(queue.get(sent)) is None
    here, there = do(queue.get(do(task.after("15m").send(42)))), do(other.get(sent))
    assert (there.topic, there.body, there.due, there.max_attempts) == (here.topic, here.body, here.due, here.max_attempts)
    many = do(task.on(other).send_many([{"order": 1}]))
    assert do(other.get(many[0])).max_attempts == 5


def test_on_something_else_is_refused(task: Any) -> None:
    with pytest.raises(BadOption, match="on\\(\\) takes a queue, and this is a str"):
        task.on("memory://")


def test_a_transaction_can_be_joined_where_the_engine_can(make_queue: Any, do: Do, tmp_path: Path) -> None:
    queue = make_queue(f"sqlite:///{tmp_path}/shop.db")
    task = queue.task("order.cancel", max_attempts=5)(cancel_unpaid)
    do(queue.stats())
    connection = sqlite3.connect(tmp_path / "shop.db", isolation_level=None)
    try:
        for end, pending in [("rollback", 0), ("commit", 1)]:
            connection.execute("begin immediate")
            sent = do(task.options(connection=connection).after("15m").send(42))
            connection.execute(end)
            assert do(queue.stats("order.cancel")).pending == pending
        assert do(queue.get(sent)).max_attempts == 5
    finally:
        connection.close()


def test_a_cancel_and_a_move_can_join_your_transaction(make_queue: Any, do: Do, tmp_path: Path) -> None:
    task = make_queue(f"sqlite:///{tmp_path}/shop.db").task("order.cancel")(cancel_unpaid)
    do(task.after("1h", key="a").send(1))
    moved = do(task.after("1h", key="b").send(2))
    with closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as connection:
        for end, states in [("rollback", ["scheduled", 0]), ("commit", [None, 3_600_000])]:
            connection.execute("begin immediate")
            assert do(task.cancel(key="a", connection=connection)) is CancelResult.CANCELLED
            assert do(task.reschedule(moved, by="1h", connection=connection)) is RescheduleResult.MOVED
            connection.execute(end)
            left = do(task.get(key="a"))
            assert [left and left.state, do(task.get(key="b")).due - moved.due] == states


def test_a_transaction_can_not_be_joined_in_memory(queue: Any, task: Any, do: Do) -> None:
    with pytest.raises(Unsupported):
        do(task.options(connection=object()).send(42))
    assert do(queue.stats()).pending == 0
