"""What `@queue.task(…)` takes, what it refuses, and what a queue knows of its tasks."""

import functools
import importlib
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from bide import BadOption, BadTime, BadTopic, BideError, ConfigError, Queue, exponential, steps

Do = Callable[[Any], Any]


def cancel_unpaid(order: int) -> str:
    """Cancel an order."""
    return f"cancelled {order}"


def test_a_task_has_the_topic_that_it_is_given(queue: Any) -> None:
    assert queue.task("order.cancel")(cancel_unpaid).topic == "order.cancel"


def test_without_a_topic_it_is_module_and_function(queue: Any) -> None:
    assert queue.task()(cancel_unpaid).topic == f"{__name__}.cancel_unpaid"


def test_calling_a_task_calls_the_plain_function(queue: Any, do: Do) -> None:
    task = queue.task("order.cancel")(cancel_unpaid)
    assert (task(42), task(order=42)) == ("cancelled 42", "cancelled 42")
    assert do(queue.stats("order.cancel")).pending == 0


def test_calling_a_task_of_an_async_function_gives_its_coroutine(queue: Any, do: Do) -> None:
    @queue.task("order.cancel")
    async def cancel(order: int) -> int:
        return order + 1

    assert do(cancel(41)) == 42


def test_a_task_looks_like_its_function(queue: Any) -> None:
    task = queue.task("order.cancel")(cancel_unpaid)
    for name in ("__name__", "__qualname__", "__module__", "__doc__", "__annotations__"):
        assert getattr(task, name) == getattr(cancel_unpaid, name), name
    assert task.__wrapped__ is cancel_unpaid
    assert task.after("1s").__qualname__ == "cancel_unpaid"
    assert re.fullmatch(r"<(Async)?Task .*test_registry\.cancel_unpaid for order\.cancel>", repr(task))


SCRIPT = """
from bide import Queue
queue = Queue("memory://")
@queue.task()
def remind(order: int) -> None: ...
if __name__ in ("__main__", "shop.__main__"): print(remind.topic)
"""


@pytest.mark.parametrize(
    ("path", "arguments", "topic"),
    [
        ("shop.py", ["shop.py"], "shop.remind"),
        ("shop/orders.py", ["-m", "shop.orders"], "shop.orders.remind"),
        ("shop/__main__.py", ["-m", "shop"], "shop.remind"),
    ],
    ids=["a script", "a module", "a package"],
)
def test_what_is_run_has_the_name_that_others_import_it_by(path: str, arguments: list[str], topic: str, tmp_path: Path) -> None:
    file = tmp_path / path
    file.parent.mkdir(exist_ok=True)
    file.write_text(SCRIPT, encoding="utf-8")
    ran = subprocess.run([sys.executable, *arguments], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == topic


def test_a_process_that_a_script_spawns_has_the_same_topics(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(
        SCRIPT + "def tell(): print(remind.topic, flush=True)\n"
        "if __name__ == '__main__':\n"
        "    from multiprocessing import get_context\n"
        "    child = get_context('spawn').Process(target=tell)\n"
        "    child.start(); child.join()\n",
        encoding="utf-8",
    )
    ran = subprocess.run([sys.executable, "shop.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["shop.remind", "shop.remind"]


def test_aliases_are_topics_of_the_task_too(queue: Any, do: Do) -> None:
    done = []

    @queue.task("order.cancel", aliases=["order.drop", "order.cancel"])
    def cancel(order: int) -> None:
        done.append(order)

    for number, topic in enumerate(["order.cancel", "order.drop"]):
        do(queue.send(topic, {"order": number}))
    assert [each.outcome for each in do(queue.testing.advance(0))] == ["done", "done"]
    assert sorted(done) == [0, 1]


@pytest.mark.parametrize(
    ("options", "refusal", "text"),
    [
        ({"topic": "order cancel"}, BadTopic, "1 to 128 characters"),
        ({"topic": ""}, BadTopic, "1 to 128 characters"),
        ({"topic": 42}, BadTopic, "1 to 128 characters"),
        ({"aliases": "order.drop"}, BadOption, "Give a list of topics"),
        ({"aliases": 42}, BadOption, "Give a list of topics"),
        ({"aliases": ["order drop"]}, BadTopic, "1 to 128 characters"),
        ({"max_attempts": 0}, BadOption, "max_attempts is 0. Give a whole number from 1"),
        ({"max_attempts": "3"}, BadOption, "max_attempts"),
        ({"max_attempts": True}, BadOption, "max_attempts"),
        ({"max_attempts": 1_001}, BadOption, "to 1,000"),
        ({"backoff": "1s"}, BadOption, "exponential"),
        ({"backoff": None}, BadOption, "exponential"),
        ({"timeout": "soon"}, BadTime, "timeout is 'soon'"),
        ({"timeout": 0}, BadTime, "could never run"),
        ({"timeout": -1}, BadTime, "negative"),
    ],
    ids=str,
)
def test_what_can_not_be_used_is_refused_with_a_sentence(
    queue: Any, options: dict[str, Any], refusal: type[BideError], text: str
) -> None:
    with pytest.raises(refusal, match=re.escape(text)):
        queue.task(**options)(cancel_unpaid)
    assert queue.task("order.cancel")(cancel_unpaid), "what was refused left something behind"


def test_what_can_be_used_is_kept(queue: Any) -> None:
    waits = steps("1s")
    known = queue.task("t", max_attempts=5, backoff=waits, timeout=timedelta(minutes=1))(cancel_unpaid).definition
    assert (known.max_attempts, known.backoff, known.timeout) == (5, waits, 60.0)
    assert queue.task("u", backoff=exponential("10s"))(cancel_unpaid).definition.timeout is None


def test_without_parentheses_it_is_refused(queue: Any) -> None:
    with pytest.raises(ConfigError, match=r"with parentheses, or with a topic: @queue\.task\('order\.cancel'\)"):
        queue.task(cancel_unpaid)


def test_positional_arguments_can_not_travel(queue: Any) -> None:
    def any_number(*orders: int) -> None: ...
    def by_place(order: int, /) -> None: ...

    with pytest.raises(ConfigError, match=r"any_number\(\) takes \*orders, but a task's arguments travel by name"):
        queue.task("t")(any_number)
    with pytest.raises(ConfigError, match=r"by_place\(\) takes the positional-only order"):
        queue.task("t")(by_place)


def test_a_function_that_does_not_tell_its_parameters_is_refused(queue: Any) -> None:
    with pytest.raises(ConfigError, match=r"max\(\) does not tell its parameters"):
        queue.task("t")(max)


def test_a_function_with_a_yield_is_refused(queue: Any) -> None:
    def orders() -> Iterator[int]:
        yield 1

    async def more_orders() -> AsyncIterator[int]:
        yield 1

    for function in (orders, more_orders):
        with pytest.raises(ConfigError, match=rf"{function.__name__}\(\) has a yield in it"):
            queue.task("t")(function)


@pytest.mark.parametrize("thing", [dict, 42, None, "cancel"], ids=str)
def test_what_is_not_a_function_is_refused(queue: Any, thing: Any) -> None:
    with pytest.raises(ConfigError, match="A task is a function"):
        queue.task("t")(thing)


def test_two_functions_for_one_topic_are_refused_and_both_are_named(queue: Any) -> None:
    def remind(order: int) -> None: ...

    queue.task("order.cancel", aliases=["order.drop"])(cancel_unpaid)
    for topic, aliases in [("order.cancel", []), ("order.drop", []), ("order.remind", ["order.drop"])]:
        with pytest.raises(ConfigError, match=r"registry\.cancel_unpaid\(\) already, and .*<locals>\.remind\(\)"):
            queue.task(topic, aliases=aliases)(remind)
    assert queue.task("order.remind")(remind), "what was refused left something behind"


def test_two_functions_of_one_name_are_told_apart(queue: Any) -> None:
    def another() -> Callable[[], None]:
        def remind() -> None: ...

        return remind

    def remind() -> None: ...

    queue.task("t")(another())
    with pytest.raises(ConfigError, match=r"another\.<locals>\.remind\(\) already, and .*apart\.<locals>\.remind\(\)"):
        queue.task("t")(remind)


def test_the_same_function_defined_again_replaces_the_one_before(queue: Any, do: Do) -> None:
    called = []

    def run_the_cell(version: int) -> Any:
        @queue.task("order.cancel", max_attempts=version)
        def cancel(order: int) -> None:
            called.append(version)

        return cancel

    run_the_cell(1)
    task = run_the_cell(2)
    sent = do(task.send(order=42))
    assert do(queue.get(sent)).max_attempts == 2
    do(queue.testing.advance(0))
    assert called == [2]


def test_what_a_function_has_as_attributes_does_not_become_the_tasks(queue: Any, do: Do) -> None:
    def cancel(order: int) -> None: ...

    cancel.definition = cancel._queue = "another"  # type: ignore[attr-defined]
    assert do(queue.task("t")(cancel).send(1)).topic == "t"


def test_a_partial_has_a_name_as_well(queue: Any) -> None:
    assert queue.task("t")(functools.partial(cancel_unpaid, 1)).__name__.endswith("partial")


def test_two_lambdas_on_one_topic_are_refused(queue: Any) -> None:
    queue.task("t")(lambda: 1)
    with pytest.raises(ConfigError, match="already"):
        queue.task("t")(lambda: 2)


def test_two_defs_of_one_name_on_one_topic_are_refused(queue: Any) -> None:
    @queue.task("t")
    def cancel() -> None: ...

    with pytest.raises(ConfigError, match="already"):

        @queue.task("t")
        def cancel() -> None: ...


def test_partials_of_two_functions_on_one_topic_are_refused(queue: Any) -> None:
    def remind(order: int) -> None: ...

    queue.task("t")(functools.partial(cancel_unpaid, 1))
    with pytest.raises(ConfigError, match=r"cancel_unpaid\(\) already, and .*remind\(\)"):
        queue.task("t")(functools.partial(remind, 1))


CELL = """
@queue.task("t")
def handle():
    seen.append({version})
"""


@pytest.mark.parametrize(
    ("first", "again"),
    [("<ipython-input-1-a>", "<ipython-input-1-a>"), ("<ipython-input-1-a>", "<ipython-input-2-b>"), ("<stdin>", "<stdin>")],
    ids=["the same cell", "an edited cell", "a prompt"],
)
def test_a_cell_may_be_run_again(queue: Any, do: Do, first: str, again: str) -> None:
    seen: list[int] = []
    names = {"__name__": "__main__", "__spec__": None, "queue": queue, "seen": seen}
    moved = "" if first == again else "# edited"
    exec(compile(CELL.format(version=1), first, "exec"), names)
    exec(compile(moved + CELL.format(version=2), again, "exec"), names)
    exec(compile("\n" * 7 + CELL.format(version=3), "<ipython-input-3-c>", "exec"), names)
    do(queue.send("t"))
    do(queue.testing.advance(0))
    assert seen == [3]


def test_a_module_may_be_loaded_again_also_when_it_was_edited(
    queue: Any, do: Do, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "shop_hall", ModuleType("shop_hall"))
    sys.modules["shop_hall"].queue = queue  # type: ignore[attr-defined]
    seen: list[int] = []
    sys.modules["shop_hall"].seen = seen  # type: ignore[attr-defined]
    shop = tmp_path / "shop_reloaded.py"
    begin = "from shop_hall import queue, seen\n"
    shop.write_text(begin + CELL.format(version=1), encoding="utf-8")
    module = importlib.import_module("shop_reloaded")
    monkeypatch.setitem(sys.modules, "shop_reloaded", module)
    importlib.reload(module)
    shop.write_text(begin + "# edited\n\n" + CELL.format(version=2), encoding="utf-8")
    importlib.reload(module)
    do(queue.send("t"))
    do(queue.testing.advance(0))
    assert seen == [2]

    shop.write_text(begin + CELL.format(version=3) + CELL.format(version=4), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"shop_reloaded\.handle\(\) already"):
        importlib.reload(module)


def test_a_queue_and_its_twin_share_their_tasks(queue: Any, do: Do) -> None:
    done = []
    twin = queue.aio if hasattr(queue, "aio") else queue.sync

    @twin.task("order.cancel", max_attempts=7)
    def cancel(order: int) -> None:
        done.append(order)

    sent = do(queue.send("order.cancel", {"order": 1}))
    assert do(queue.get(sent)).max_attempts == 7
    do(cancel.send(2))
    assert [each.outcome for each in do(queue.testing.advance(0))] == ["done", "done"]
    assert done == [1, 2]
    with pytest.raises(ConfigError, match="already"):
        queue.task("order.cancel")(cancel_unpaid)


def test_a_task_may_be_made_a_task_once_more(queue: Any, do: Do, coloured: Any) -> None:
    done: list[int] = []

    def cancel(order: int) -> None:
        done.append(order)

    first = queue.task("order.cancel")(coloured(cancel))
    second = queue.task("order.drop")(first)
    do(first.send(1))
    do(second.send(2))
    do(queue.testing.advance(0))
    assert sorted(done) == [1, 2]


def test_what_can_be_called_like_a_function_may_be_a_task(queue: Any, do: Do) -> None:
    done: list[tuple[str, int]] = []

    class Canceller:
        async def __call__(self, order: int) -> None:
            done.append(("object", order))

    def cancel(order: int, reason: str) -> None:
        done.append((reason, order))

    do(queue.task("a")(Canceller()).send(1))
    do(queue.task("b")(functools.partial(cancel, reason="partial")).send(2))
    do(queue.task("c")(functools.lru_cache(cancel)).send(3, "cached"))
    assert {each.outcome for each in do(queue.testing.advance(0))} == {"done"}
    assert sorted(done) == [("cached", 3), ("object", 1), ("partial", 2)]


def test_type_hints_that_mean_nothing_are_told_when_first_needed(queue: Any, do: Do) -> None:
    def cancel(order: "Order") -> None: ...  # type: ignore[name-defined]  # noqa: F821

    task = queue.task("order.cancel")(cancel)
    with pytest.raises(ConfigError, match=r"The type hints of cancel.* can't be used: name 'Order' is not defined"):
        do(task.send(order=1))


def test_a_method_is_refused() -> None:
    queue = Queue("memory://")
    with pytest.raises(ConfigError, match="is a method"):

        class Shop:
            @queue.task("order.pack")
            def pack(self, order: int) -> None: ...
