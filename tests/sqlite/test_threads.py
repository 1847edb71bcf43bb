"""A machine that has no thread to give for a while: what needs one says so or waits, and works as soon as there is one."""

from pathlib import Path

import pytest

from bide import AsyncQueue, Unavailable
from tests.worker.faults import no_threads


async def test_a_send_without_a_thread_to_write_is_refused_and_works_later(tmp_path: Path) -> None:
    async with AsyncQueue(f"sqlite:///{tmp_path}/bide.db") as queue:
        with no_threads("bide-sqlite"), pytest.raises(Unavailable, match="No thread can be started"):
            await queue.send("t", 1)
        assert (await queue.stats("t")).ready == 0
        await queue.send("t", 2)
        [delivery] = await queue.receive("t")
        assert delivery.body == 2
        await delivery.ack()


async def test_a_receiver_without_a_thread_to_watch_sleeps_and_takes_the_next_chance(tmp_path: Path) -> None:
    async with AsyncQueue(f"sqlite:///{tmp_path}/bide.db") as queue:
        await queue.send("t", 1)  # the thread that writes is there
        with no_threads("bide-sqlite-watch") as refused:
            [first] = await queue.receive("t")
            while len(refused) < 2:  # a slow machine may be too late to sleep at all
                assert await queue.receive("t", wait="10ms") == []
        assert await queue.receive("t", wait="10ms") == []
        await first.ack()
