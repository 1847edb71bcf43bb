"""What a type checker says of tasks: right calls are fine, and each wrong one is an error in its own line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

CODE = """
from typing import assert_type
from bide import AsyncQueue, AsyncTask, Backoff, Failed, Health, Outgoing, Queue, Sent, Task, Worker, exponential

queue = AsyncQueue("memory://")
plain = Queue("memory://")

@queue.task("order.cancel", aliases=["order.drop"], timeout="1m")
async def cancel_unpaid(order: int, *, reason: str = "unpaid") -> None: ...

usual: Backoff = exponential("1s")
quarters: Backoff = lambda attempt: f"{15 * attempt}m"
assert_type(Worker(queue).health(), Health)

@plain.task(backoff=quarters)
def remind(order: int) -> str:
    return "reminded"

@queue.task("likes", batch=500, linger="200ms", max_attempts=5)
async def write(likes: list[int]) -> list[Failed]:
    return [Failed(likes[0], "no such post")]

@plain.task(batch=500)
def count(words: list[str]) -> None: ...

async def batches() -> None:
    assert_type(await write.send(1), Sent)
    assert_type(await write.after("15m", key="k").send_many([1, 2]), list[Sent])
    assert_type(await write.send_many([1, Outgoing(2, delay="5m")]), list[Sent])
    assert_type(count.send_many(Outgoing(word, delay=5) for word in "ab"), list[Sent])
    assert_type(write.on(plain).send(1), Sent)
    assert_type(await write([1, 2]), list[Failed])
    assert_type(count.send("a"), Sent)
    await write.send("a")  # error: no such item
    await write.send([1])  # error: a list of items
    count.send(1)  # error: no such item
    write.on(plain).send("a")  # error: no such item through the other colour
    await write.cancel(key="k")

async def wrong_answer(likes: list[int]) -> int:
    return len(likes)

queue.task(batch=500)(wrong_answer)  # error: the answer is no Failed

queue.task(linger="1s")  # error: without batch=
queue.task(batch=5, keep="1h")  # error: a batch has no result

@queue.task("report", keep="1h")
async def report(month: str) -> dict[str, int]:
    return {"orders": 12}

@queue.task("name", keep="1h")
def name(month: str) -> str:
    return month

@plain.task(keep="1h")
def total(month: str) -> int:
    return 12

@plain.task(keep="1h")
async def later_total(month: str) -> int:
    return 12

async def results() -> None:
    sent = await report.after("15m").send("2026-07")
    assert_type(await sent.result(timeout="10s"), dict[str, int])
    assert_type(await (await name.send("2026-07")).result(), str)
    assert_type([await each.result() for each in await name.send_many([{"month": "2026-07"}])], list[str])
    assert_type(total.send("2026-07").result(timeout=0), int)
    assert_type(later_total.send("2026-07").result(), int)
    assert_type(report.on(plain).send("2026-07").result(), dict[str, int])
    assert_type(await (await total.on(queue).send("2026-07")).result(), int)
    one: AsyncTask[[str], str] = name
    all_sent: list[Sent] = [sent, total.send("2026-07")]
    total.send(7)  # error: a wrong type, with a result
    total.send("2026-07").result(wait=1)  # error: no such option
    wrong: str = total.send("2026-07").result()  # error: a number

async def fine() -> None:
    assert_type(await cancel_unpaid.send(order=1), Sent)
    await cancel_unpaid.send(1, reason="late")
    await cancel_unpaid(1)
    assert_type(await cancel_unpaid.after("15m", key="k").send(order=1), Sent)
    assert_type(await cancel_unpaid.options(delay=90, priority="high").send_many([{"order": 1}]), list[Sent])
    assert_type(await cancel_unpaid.send_many([{"order": 1}, Outgoing({"order": 2}, key="k")]), list[Sent])
    assert bool(await cancel_unpaid.cancel(key="k", connection=object()))
    assert_type(cancel_unpaid.on(queue.sync).after("1s").send(order=1), Sent)
    assert_type(remind.send(1), Sent)
    assert_type(await remind.on(plain.aio).send(1), Sent)
    assert_type(remind(1), str)
    assert bool(await cancel_unpaid.cancel(key="k")) or remind.cancel(key="k")

async def wrong() -> None:
    await cancel_unpaid.send("x")  # error: a wrong type
    await cancel_unpaid.send()  # error: one is missing
    await cancel_unpaid.send(1, raeson="late")  # error: an unknown one
    await cancel_unpaid.send(1, "late")  # error: by name only
    cancel_unpaid.send(1)  # error: not awaited
    await cancel_unpaid.after("15m", kye="k").send(order=1)  # error: an unknown option
    await cancel_unpaid.options(priority="urgent").send(order=1)  # error: a wrong option
    await cancel_unpaid.at("15m").send(order=1)  # error: no instant
    await cancel_unpaid.after("15m").send(order="x")  # error: a wrong type after options
    await cancel_unpaid.on(queue.sync).send(order=1)  # error: awaited, but sync
    cancel_unpaid.on(queue.sync).send(order="x")  # error: a wrong type through the other colour
    await remind.send(1)  # error: awaited, but sync
    remind("x")  # error: the plain function is checked too
    cancel_unpaid.on("sync")  # error: no queue
    plain.task(backoff=lambda attempt: None)  # error: no wait
"""
WRONG = {number for number, line in enumerate(CODE.splitlines(), 1) if "# error" in line}


def lines_with_errors(command: list[str], folder: Path) -> set[int]:
    (folder / "shop.py").write_text(CODE, encoding="utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", *command, "shop.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(Path(sys.executable).parent), "HOME": str(Path.home()), "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"},
    )
    found = re.findall(r"shop\.py:(\d+)(?::\d+)?(?: -|:) error", ran.stdout)
    assert found, ran.stdout + ran.stderr
    return {int(line) for line in found}


def test_mypy_finds_what_is_wrong_and_only_that(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    assert lines_with_errors(["mypy", "--strict", "--cache-dir", str(tmp_path / "cache")], tmp_path) == WRONG


def test_pyright_finds_what_is_wrong_and_only_that(tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    assert lines_with_errors(["pyright", "--pythonpath", sys.executable], tmp_path) == WRONG
