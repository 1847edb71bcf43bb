"""Nothing of a message that has ended waits for the garbage collector: there may be many, with large bodies."""

import asyncio
import gc
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from bide import AsyncQueue, Bury, Retry, Snooze, current, steps
from bide.queue.run.message import Handling

MANY = 10


@pytest.fixture
def uncollected() -> Iterator[None]:
    logging.disable()  # pytest keeps what is logged, with its errors
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    logging.disable(logging.NOTSET)


async def done() -> None:
    """Nothing."""


async def fails() -> None:
    raise ValueError("no tape")


async def fails_for_a_reason() -> None:
    raise Retry("1h") from ValueError("no tape")


async def is_put_off() -> None:
    raise Snooze("1h")


async def is_buried() -> None:
    raise Bury("no tape")


async def exits() -> None:
    raise SystemExit


async def takes_too_long() -> None:
    await asyncio.Event().wait()


async def ends_by_itself() -> None:
    await current().ack()


async def does_not_fit(number: int) -> None:
    """The messages have no number."""


def in_a_thread() -> None:
    """Nothing."""


def fails_in_a_thread() -> None:
    raise ValueError("no tape")


def handlings() -> list[Handling]:
    return [each for each in gc.get_objects() if type(each) is Handling]  # to others it may mean much to be asked


async def middleware(delivery: Any, handle: Any) -> None:
    await handle()


HANDLERS = [
    done, fails, fails_for_a_reason, is_put_off, is_buried, exits, takes_too_long, ends_by_itself, does_not_fit,
    in_a_thread, fails_in_a_thread,
]  # fmt: skip


@pytest.mark.usefixtures("uncollected")
@pytest.mark.parametrize("around", [[], [middleware]], ids=["alone", "in middleware"])
@pytest.mark.parametrize("handler", HANDLERS)
async def test_a_message_that_has_ended_is_gone_at_once(
    memory: AsyncQueue, working: Any, until: Any, handler: Any, around: Any
) -> None:
    before = set(map(id, handlings()))
    memory.task("t", timeout="10ms" if handler is takes_too_long else None, backoff=steps("1h"), max_attempts=2)(handler)
    await memory.send_many("t", [{}] * MANY)
    async with working(memory, middleware=around) as worker:

        async def ended() -> bool:
            stats = await memory.stats("t")
            return stats.ready == stats.leased == 0 and worker.health().running == 0

        await until(ended)
        await until(lambda: before.issuperset(map(id, handlings())))
