"""Messages of an outbox that the queue's engine can't take, however many: they cost few calls, and hold up no other."""

import asyncio
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, BadTime, Queue, Unsupported
from bide.engines.base import MAX_BATCH, NewMessage
from bide.engines.each import error_of_each
from bide.engines.guard import Rules
from bide.queue import outbox
from bide.queue.relay import Kept, Rests
from tests.modest import CAPABILITIES, LONGEST
from tests.queue.test_outbox_handed_on import connected, outbox_of

MANY = MAX_BATCH  # as many as are claimed behind others that are held back


@pytest.fixture
def store(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/app.db"


def fill(queue: Queue, store: str, bodies: Sequence[object]) -> None:
    queue.open()
    with connected(store) as own:
        queue.send_many("t", bodies, connection=own)
        own.commit()


def test_the_error_for_a_batch_is_that_of_its_first_bad_message_and_knows_those_of_all() -> None:
    rules = Rules(CAPABILITIES, "modest://")
    good, keyed = NewMessage("t", b"1"), NewMessage("t", b"1", key="k")
    late, urgent = NewMessage("t", b"1", delay=2 * LONGEST), NewMessage("t", b"1", level=2)
    with pytest.raises(Unsupported, match=r"^modest:// has no keys: leave key= and if_exists= out\.") as caught:
        rules.check_messages([good, keyed, good, urgent, keyed])
    errors = error_of_each(caught.value, 5)
    told = [None if each is None else str(each).split(":")[1] for each in errors]
    assert told == [None, "// has no keys", None, "// has no priorities", "// has no keys"]
    assert len(set(map(id, errors))) == 4
    with pytest.raises(BadTime, match="The delay is longer"):
        rules.check_messages([late, keyed])


def test_what_the_guard_refuses_costs_one_more_call(modest_url: str, store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Queue(f"memory://{modest_url[9:]}", outbox=store) as before:
        before.open()
        with connected(store) as own:
            for number in range(50):
                before.send("t", number, key=f"k{number}" if number % 2 else None, connection=own)
            own.commit()
    with Queue(modest_url, outbox=store) as queue:
        target, puts = outbox_of(queue)._target, list[int]()
        put = target.put

        def counted(messages: Sequence[NewMessage], **how: Any) -> Any:
            puts.append(len(messages))
            return put(messages, **how)

        monkeypatch.setattr(target, "put", counted)
        assert queue.relay(wait=False) == 25
        assert puts == [50, 25]


def test_of_many_that_are_refused_each_is_looked_at_a_few_times(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    looks = 0
    doubt = Rests.doubt

    def counted(self: Rests, each: Kept) -> int:
        nonlocal looks
        looks += 1
        return doubt(self, each)

    def refuse(_: Sequence[NewMessage]) -> Any:
        raise Unsupported("Not here.")

    monkeypatch.setattr(Rests, "doubt", counted)
    with Queue("memory://many", outbox=store) as queue:
        fill(queue, store, range(MANY))
        handover = outbox_of(queue).relay()._handover
        claim = outbox_of(queue).store.claim([outbox.TOPIC], MANY, 60_000)
        monkeypatch.setattr(queue.session.open().engine, "put", refuse)
        ends: list[Any] = []
        handover.put(handover.read(claim, ends), ends, claim.now)
    assert len(ends) == MANY
    assert looks <= MANY * (math.ceil(math.log2(MANY)) + 1)


async def test_between_calls_that_are_refused_at_once_other_tasks_run(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Queue("memory://before", outbox=store) as before:
        fill(before, store, range(100))
    async with AsyncQueue("memory://after", outbox=store) as queue:
        turns, seen = 0, list[int]()

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        async def refuse(_: Sequence[NewMessage]) -> Any:
            seen.append(turns)
            raise Unsupported("Not here.")

        opened = await queue.session.open()
        monkeypatch.setattr(opened.engine, "put", refuse)
        task = asyncio.create_task(others())
        assert await queue.relay(wait=False) == 0
        task.cancel()
    assert len(seen) == 199
    assert len(set(seen)) == len(seen)
