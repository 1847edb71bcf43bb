"""What the log says of the ends of messages: slow, retried and failed ones at INFO or above, all if somebody wants them."""

import asyncio
import json
import logging
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, Bury, Retry, Snooze, current, steps
from bide.engines.base import End
from bide.worker import Worker
from tests.worker.processes import open_shop
from tests.worker.test_running import ended

SLOW = 0.05  # seconds that the tests call slow; a handler that is to be slow takes twice that


def lines(caplog: pytest.LogCaptureFixture, lowest: int = logging.INFO) -> list[Any]:
    """Those that say how messages ended."""
    return [each for each in caplog.records if hasattr(each, "outcome") and each.levelno >= lowest]


async def worked(queue: AsyncQueue, until: Any, **options: Any) -> None:
    """Until all that was sent has ended."""
    async with Worker(queue, **{"grace": 0, "slow": SLOW, **options}):
        await until(lambda: ended(queue))


def blocks() -> None:
    time.sleep(2 * SLOW)


async def test_a_slow_message_has_a_line_at_info_and_a_quick_one_has_none(queue: AsyncQueue, until: Any, caplog: Any) -> None:
    """Whether its handler waits, blocks the loop before it waits, or runs in a thread, and whether it looks at its delivery."""

    @queue.task("quick")
    async def quick(number: int) -> None: ...

    @queue.task("waits")
    async def waits() -> None:
        await asyncio.sleep(2 * SLOW)

    @queue.task("blocks.and.waits")
    async def blocks_and_waits() -> None:
        blocks()
        await asyncio.sleep(0)

    @queue.task("thread")
    def thread() -> None:
        blocks()

    @queue.task("looks")
    async def looks() -> None:
        assert current().attempt == 1
        await asyncio.sleep(2 * SLOW)

    caplog.set_level(logging.INFO, "bide.worker")
    await queue.send_many("quick", [{"number": number} for number in range(100)])
    for topic in ("waits", "blocks.and.waits", "thread", "looks"):
        await queue.send(topic)
    await worked(queue, until, slow=SLOW, concurrency=1)

    told = {each.topic: each for each in lines(caplog) if each.topic != "quick"}
    assert sum(each.topic == "quick" for each in lines(caplog)) < 50  # a busy machine makes some of them slow
    assert told.keys() == {"waits", "blocks.and.waits", "thread", "looks"}
    for each in told.values():
        assert (each.levelno, each.outcome, each.attempt) == (logging.INFO, "done", 1)
        assert each.seconds >= 2 * SLOW
        seconds = f"{each.seconds:.3f}"
        assert each.getMessage() == f"Message {each.message_id} of {each.topic} is done in attempt 1 of 3 after {seconds} s"


@pytest.mark.parametrize("place", [0, 7, 19])
@pytest.mark.parametrize("then", ["returns", "waits", "looks", "looks and waits"])
async def test_of_messages_that_are_called_in_a_row_the_one_that_blocks_the_loop_is_named(
    memory: AsyncQueue, until: Any, caplog: Any, place: int, then: str
) -> None:
    @memory.task("a")
    async def handle(number: int) -> None:
        if number != place:
            return
        blocks()
        if "looks" in then:
            assert current().attempt == 1
        if "waits" in then:
            await asyncio.sleep(0)

    caplog.set_level(logging.INFO, "bide.worker")
    for _ in range(10):  # a busy machine makes others slow, too, but not each time
        caplog.clear()
        sent = await memory.send_many("a", [{"number": number} for number in range(20)])
        await worked(memory, until, slow=1.5 * SLOW)
        named = {each.message_id: each.seconds for each in lines(caplog)}
        assert named[sent[place].id] >= 2 * SLOW
        if len(named) == 1:
            break
    assert named.keys() == {sent[place].id}


@pytest.mark.parametrize(
    ("raised", "level", "outcome", "said"),
    [
        (
            ValueError("no"),
            logging.ERROR,
            "retried",
            r"failed in attempt 1 of 2 after \d\.\d{3} s, and is tried again in 3600 s$",
        ),
        (
            Retry("1h"),
            logging.INFO,
            "retried",
            r"s, as its handler asked, and is tried again in 3600 s: asked for another attempt",
        ),
        (Bury("no such order"), logging.WARNING, "dead", r"s, as its handler asked, and is buried: no such order$"),
        (
            Snooze("1h"),
            logging.DEBUG,
            "released",
            r"was put off in attempt 1 of 2 after \d\.\d{3} s, and comes back in 3600 s: ",
        ),
    ],
    ids=["error", "retry", "bury", "snooze"],
)
async def test_an_end_that_was_told_with_its_error_has_one_line(
    memory: AsyncQueue, until: Any, caplog: Any, raised: Exception, level: int, outcome: str, said: str
) -> None:
    """Also if all are asked for: then what is told at DEBUG otherwise is told at INFO."""

    @memory.task("a", max_attempts=2, backoff=steps("1h"))
    async def handle() -> None:
        raise raised

    caplog.set_level(logging.DEBUG, "bide.worker")
    for every in (False, True):
        caplog.clear()
        await handle.send()
        async with Worker(memory, grace=0, log_messages=every):
            await until(lambda: lines(caplog, logging.DEBUG))
        [told] = lines(caplog, logging.DEBUG)
        assert (told.levelno, told.outcome) == (max(level, logging.INFO) if every else level, outcome)
        assert re.search(said, told.getMessage())


async def test_the_last_attempt_says_that_the_message_is_buried(memory: AsyncQueue, until: Any, caplog: Any) -> None:
    @memory.task("a", max_attempts=1)
    async def handle() -> None:
        raise ValueError

    await handle.send()
    await worked(memory, until)
    [told] = lines(caplog)
    assert re.search(r"failed in attempt 1 of 1 after \d\.\d{3} s, and is buried$", told.getMessage())
    assert (told.outcome, told.levelno) == ("dead", logging.ERROR)


@pytest.mark.parametrize(
    ("verb", "level", "outcome", "said"),
    [
        ("ack", logging.DEBUG, "done", "is done in attempt 1 of 3 after "),
        ("retry", logging.INFO, "retried", "failed in attempt 1 of 3 after "),
        ("bury", logging.WARNING, "dead", "failed in attempt 1 of 3 after "),
        ("release", logging.DEBUG, "released", "was put off in attempt 1 of 3 after "),
    ],
)
async def test_what_a_handler_did_with_its_delivery_is_told(
    memory: AsyncQueue, until: Any, caplog: Any, verb: str, level: int, outcome: str, said: str
) -> None:
    @memory.task("a")
    async def handle() -> None:
        call: Any = getattr(current(), verb)
        await call(*{"retry": ["1h"], "release": ["1h"], "bury": ["why"]}.get(verb, []))

    caplog.set_level(logging.DEBUG, "bide.worker")
    await handle.send()
    async with Worker(memory, grace=0):
        await until(lambda: lines(caplog, logging.DEBUG))
    [told] = lines(caplog, logging.DEBUG)
    assert (told.levelno, told.outcome) == (level, outcome)
    assert said in told.getMessage()
    assert "as its handler said" in told.getMessage()


def sync_handler(number: int) -> None: ...


async def async_handler(number: int) -> None: ...


async def waiting_handler(number: int) -> None:
    await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("options", "level"),
    [({"log_messages": True}, logging.INFO), ({"slow": 0}, logging.INFO), ({}, logging.DEBUG)],
    ids=["log_messages", "slow=0", "debug"],
)
@pytest.mark.parametrize("handler", [async_handler, waiting_handler, sync_handler])
async def test_all_messages_are_told_if_that_is_asked_for(
    queue: AsyncQueue, until: Any, caplog: Any, options: dict[str, Any], level: int, handler: Any
) -> None:
    queue.task("a")(handler)
    caplog.set_level(level, "bide.worker")
    sent = await queue.send_many("a", [{"number": number} for number in range(50)])
    async with Worker(queue, **{"slow": "1m", **options}):
        await until(lambda: len(lines(caplog, level)) >= len(sent))
    told = lines(caplog, level)
    assert sorted(each.message_id for each in told) == sorted(each.id for each in sent)
    assert {(each.levelno, each.outcome, each.attempt) for each in told} == {(level, "done", 1)}
    assert all(re.search(r"is done in attempt 1 of 3 after \d+\.\d{3} s$", each.getMessage()) for each in told)
    assert all(each.seconds > 0 for each in told)


async def test_a_batch_is_told_message_by_message_with_the_time_of_its_handler(
    queue: AsyncQueue, until: Any, caplog: Any
) -> None:
    @queue.task("a", batch=5)
    async def handle(numbers: list[int]) -> None:
        await asyncio.sleep(2 * SLOW)

    caplog.set_level(logging.INFO, "bide.worker")
    for number in range(5):
        await handle.send(number)
    await worked(queue, until)
    told = lines(caplog)
    assert len(told) == 5
    assert all(each.outcome == "done" and each.seconds >= 2 * SLOW for each in told)


async def test_what_a_stop_gives_back_is_told_among_all(memory: AsyncQueue, caplog: Any) -> None:
    begun = asyncio.Event()

    @memory.task("a")
    async def handle() -> None:
        begun.set()
        await asyncio.Event().wait()

    caplog.set_level(logging.INFO, "bide.worker")
    await handle.send()
    async with Worker(memory, grace=0, log_messages=True):
        await begun.wait()
    [told] = lines(caplog)
    assert re.search(r"was given back in attempt 1 of 3 after \d\.\d{3} s, because the worker stops$", told.getMessage())


async def test_a_message_whose_lease_was_lost_is_not_called_done(memory: AsyncQueue, until: Any, caplog: Any) -> None:
    let_go = threading.Event()

    @memory.task("a", max_attempts=1)
    def handle() -> None:
        let_go.wait(20)

    caplog.set_level(logging.DEBUG, "bide.worker")
    sent = await handle.send()
    async with Worker(memory, log_messages=True) as worker:
        await until(lambda: worker.health().running)
        assert worker._service is not None
        [under_way] = worker._service._under_way
        claimed = under_way.claimed
        # as another one would that has it by now
        await worker._service._under_way.settling._engine.settle([End(claimed.topic, claimed.id, claimed.token, "done")])
        let_go.set()
        await until(lambda: not worker.health().running)
    assert f"The lease of message {sent.id} of a was lost in attempt 1" in caplog.text
    assert not lines(caplog, logging.DEBUG)


def test_the_command_logs_every_message_as_json(tmp_path: Path) -> None:
    with open_shop(tmp_path) as shop:
        shop.write('@queue.task("a")\nasync def a():\n    say("a")\n')
        sent = shop.queue.send("a")
        worker = shop.start("--log-format", "json", "--log-messages", "--slow", "1m", "--processes", "1")
        shop.empty()
        assert worker.stop()[0] == 0
        told = [json.loads(line) for line in worker.err.splitlines() if '"outcome"' in line]
    [line] = told
    assert (line["message_id"], line["topic"], line["attempt"], line["outcome"]) == (sent.id, "a", 1, "done")
    assert 0 < line["seconds"] < 60
    assert line["level"] == "info"
