"""What people do wrong on their first days, and what bide says to it: a sentence that names the mistake, and the way out."""

import asyncio
import logging
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, BadMessage, BadOption, BadUrl, ConfigError, Exists, Queue, Unsupported
from bide.queue import event_loops

TROUBLES = Path("docs/troubleshooting.md").read_text("utf-8")
MISSING = "BIDE_TEST_THAT_IS_NOT_SET"


@pytest.mark.parametrize("kind", [Queue, AsyncQueue])
def test_a_url_from_a_variable_that_is_not_set_is_refused(kind: Callable[..., Any]) -> None:
    with pytest.raises(BadUrl, match=r"The URL is None.*that variable is not set"):
        kind(os.environ.get(MISSING))


@pytest.mark.parametrize("kind", [Queue, AsyncQueue])
def test_a_variable_that_is_empty_is_named(kind: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIDE_URL", " ")
    with pytest.raises(BadUrl, match=r"\$BIDE_URL is empty. Set it to .* or unset it"):
        kind()


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, and no URL in the environment."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BIDE_URL", raising=False)
    return tmp_path / "bide.db"


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING]


def test_a_file_that_nobody_named_is_told_when_it_is_created(nowhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        with Queue() as queue:
            queue.send("mail", 1)
    [told] = warnings(caplog)
    assert str(nowhere) in told
    assert "BIDE_URL" in told


async def test_an_async_queue_tells_it_too(nowhere: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncQueue() as queue:
        await queue.send("mail", 1)
    [told] = warnings(caplog)
    assert str(nowhere) in told


@pytest.mark.parametrize("named", ["by its URL", "by $BIDE_URL"])
def test_a_file_that_somebody_named_is_not_told(
    nowhere: Path, named: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    url = f"sqlite:///{nowhere.with_name('shop.db')}"
    monkeypatch.setenv("BIDE_URL", url)
    with Queue(url) if named == "by its URL" else Queue() as queue:
        queue.send("mail", 1)
    assert warnings(caplog) == []


def test_the_command_line_tells_of_its_file_once(nowhere: Path) -> None:
    told = [
        subprocess.run(
            [sys.executable, "-m", "bide", "send", "mail", "1"], capture_output=True, text=True, check=True, cwd=nowhere.parent
        ).stderr
        for _ in range(2)
    ]
    assert str(nowhere) in told[0]
    assert "BIDE_URL" in told[0]
    assert told[1] == ""


@pytest.fixture
def queue() -> Iterator[Queue]:
    with Queue("memory://") as queue:
        yield queue


def test_a_result_that_the_task_does_not_keep_is_not_waited_for(queue: Queue) -> None:
    @queue.task("order.count")
    def count(order: int) -> int:
        return order

    with pytest.raises(BadOption, match=r"The task for order\.count has no keep=.*keep='1h'"):
        queue.result(count.send(order=1))


async def test_nor_in_an_event_loop() -> None:
    async with AsyncQueue("memory://") as queue:

        @queue.task("order.count")
        async def count(order: int) -> int:
            return order

        with pytest.raises(BadOption, match=r"The task for order\.count has no keep="):
            await queue.result(await count.send(order=1))


def test_a_sync_call_that_holds_up_an_event_loop_is_told_once(
    queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_loops, "LONG", 0.02)
    monkeypatch.setattr(event_loops.lookout, "warned", False)

    async def view() -> None:
        until = time.monotonic() + 30
        while not event_loops.lookout.warned and time.monotonic() < until:
            queue.receive("mail", wait=0.2)
        queue.receive("mail", wait=0.1)

    asyncio.run(view())
    [told] = warnings(caplog)
    assert "AsyncQueue" in told
    assert "test_people.py" in told


def cancel(order: int, reason: str = "") -> None: ...
def draw(on: threading.Thread) -> None: ...
def draw_many(numbers: list[int]) -> None: ...


SAID: list[tuple[str, Callable[[Any, Any], object], type[Exception], str]] = [
    (
        "a key that is a number",
        lambda queue, _: queue.send("t", 1, key=42),
        BadOption,
        r"For this number: str\(42\)\.",
    ),
    ("a misspelt argument", lambda _, task: task.send(ordr=1), BadMessage, "it takes no 'ordr', but it does take 'order'"),
    ("a wrong type", lambda _, task: task.send(order="many"), BadMessage, "Expected `int`, got `str`"),
    ("Celery's delay", lambda _, task: task.delay(1), AttributeError, r"Write cancel\.send\(…\).*cancel\.after"),
    ("Celery's apply_async", lambda _, task: task.apply_async((1,)), AttributeError, r"cancel\.options\(…\)"),
    (
        "a countdown",
        lambda _, task: task.options(countdown=5),
        BadOption,
        r"countdown is no .*Here it is after",
    ),
    ("a countdown of a queue", lambda queue, _: queue.send("t", countdown=5), BadOption, "Here it is delay=, as in delay='5m'"),
    ("an eta of a later", lambda queue, _: queue.later("t", eta=5), BadOption, "Here it is at=, an aware datetime"),
    ("an expiry", lambda queue, _: queue.send("t", expires=5), BadOption, "Here it is expires_in=. There is: at,"),
    ("what JSON can't hold", lambda queue, _: queue.task("u")(draw), ConfigError, "can't be sent its on: "),
    ("a batch that is no list", lambda queue, _: queue.task("u", batch=3)(cancel), ConfigError, "is a list of items"),
    (
        "an option that nobody has",
        lambda _, task: task.options(colour=5),
        BadOption,
        "no option of a send. There is: at,",
    ),
    (
        "max_retries",
        lambda queue, _: queue.task("u", max_retries=3),
        ConfigError,
        "Here it is max_attempts=",
    ),
    ("an option of no task", lambda queue, _: queue.task("u", colour=3), ConfigError, "colour is no option of a task.$"),
    ("an attribute that no task has", lambda _, task: task.colour, AttributeError, "no attribute 'colour'"),
    ("a pickled queue", lambda queue, _: pickle.dumps(queue), TypeError, "A queue can't be pickled.*Make one in each process"),
]


@pytest.mark.parametrize(("what", "does", "error", "said"), SAID, ids=[each[0] for each in SAID])
def test_what_is_said(queue: Queue, what: str, does: Callable[[Any, Any], object], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as raised:
        does(queue, queue.task("order.cancel")(cancel))
    assert type(raised.value).__module__ in ("bide.errors", "builtins")  # what is raised can be imported, and caught
    assert queue.stats().topics == {}


def test_a_key_that_is_taken_says_what_can_be_done(queue: Queue) -> None:
    queue.send("order", 1, delay=60, key="42")
    with pytest.raises(Exists, match=r"Cancel or reschedule it by its key, or send with if_exists="):
        queue.send("order", 2, key="42", if_exists="error")


async def test_the_wrong_with_is_told() -> None:
    with pytest.raises(ConfigError, match=r"entered with `with`.*queue\.aio"):
        async with Queue("memory://"):  # type: ignore[attr-defined]
            pass
    with pytest.raises(ConfigError, match=r"with `async with`.*queue\.sync"), AsyncQueue("memory://"):  # type: ignore[attr-defined]
        pass


def test_a_transaction_where_there_is_none_names_the_outbox(redis_url: str) -> None:
    with Queue(redis_url) as queue, pytest.raises(Unsupported, match="as outbox="):
        queue.send("order", 1, connection=object())


def called_by_python(queue: AsyncQueue, task: Any) -> dict[str, Any]:
    """What somebody has called without awaiting it, by its name in Python's warning."""
    calls = [queue.send("t"), queue.stats(), queue.cancel_many([]), task.send(order=1), task.cancel(key="k")]
    for each in calls:
        each.close()
    return {each.__qualname__: each for each in calls}


def test_a_forgotten_await_is_told_by_the_name_that_was_called() -> None:
    queue = AsyncQueue("memory://")
    plain = called_by_python(queue, queue.task("t")(cancel))
    assert list(plain) == [
        "AsyncQueue.send", "AsyncQueue.stats", "AsyncQueue.cancel_many", "AsyncTask.send", "AsyncTask.cancel"
    ]  # fmt: skip
    keeping: Any = queue.task("k", keep="1h")(cancel)
    call = keeping.send(order=1)
    call.close()
    assert call.__qualname__ == "AsyncKeepingTask.send"
    batch: Any = queue.task("b", batch=2)(draw_many)
    call = batch.send(1)
    call.close()
    assert call.__qualname__ == "AsyncBatchTask.send"


def test_a_wrong_call_is_told_by_the_name_that_was_called(queue: Queue) -> None:
    wrong: Any = queue
    with pytest.raises(TypeError, match=r"^Queue\.reschedule\(\) got an unexpected"):
        wrong.reschedule("t", countdown=3)


async def test_an_await_too_many_is_told_as_the_page_on_troubleshooting_has_it(queue: Queue) -> None:
    """The same of a forgotten one."""
    wrong: Any = queue
    with pytest.raises(TypeError) as told:
        await wrong.send("t")
    assert f"`TypeError: {told.value}`" in TROUBLES
    assert "`RuntimeWarning: coroutine 'AsyncQueue.send' was never awaited`" in TROUBLES
