"""Several processes on one file: they share its work, wait for each other, and survive each other's end."""

import asyncio
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, Queue, Unavailable
from bide.engines.sqlite import file

Start = Callable[..., Any]
Until = Callable[[Callable[[], bool]], None]


def sound(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("pragma integrity_check").fetchall() == [("ok",)]


PRODUCE = {
    "sync": """
        import sys
        from bide import Queue
        with Queue(sys.argv[1]) as queue:
            for number in range(int(sys.argv[2]), int(sys.argv[3])):
                queue.send("t", number)
    """,
    "async": """
        import asyncio, sys
        from bide import AsyncQueue
        async def main():
            async with AsyncQueue(sys.argv[1]) as queue:
                await asyncio.gather(*(queue.send("t", n) for n in range(int(sys.argv[2]), int(sys.argv[3]))))
        asyncio.run(main())
    """,
}
CONSUME = {
    "sync": """
        import sys
        from bide import Queue
        with Queue(sys.argv[1]) as queue:
            while True:
                for delivery in queue.receive("t", sys.argv[2], limit=10, wait="60s"):
                    delivery.ack()
                    print(delivery.topic, delivery.body, flush=True)
                    if delivery.topic != "t":
                        sys.exit()
    """,
    "async": """
        import asyncio, sys
        from bide import AsyncQueue
        async def main():
            async with AsyncQueue(sys.argv[1]) as queue:
                while True:
                    got = await queue.receive("t", sys.argv[2], limit=10, wait="60s")
                    await asyncio.gather(*(delivery.ack() for delivery in got))
                    for delivery in got:
                        print(delivery.topic, delivery.body, flush=True)
                        if delivery.topic != "t":
                            return
        asyncio.run(main())
    """,
}


@pytest.mark.always
def test_sync_and_async_processes_share_a_file(start: Start, url: str, path: Path) -> None:
    consumers = {colour: start(CONSUME[colour], url, f"stop-{colour}") for colour in CONSUME}
    producers = [start(PRODUCE["sync"], url, 0, 1_000), start(PRODUCE["async"], url, 1_000, 2_000)]
    got: Counter[int] = Counter()
    rest = threading.Semaphore(0)

    def read(colour: str) -> None:
        while (line := consumers[colour].line()) != f"stop-{colour} None":
            got[int(line.removeprefix("t "))] += 1
            rest.release()

    readers = [threading.Thread(target=read, args=[colour]) for colour in consumers]
    for reader in readers:
        reader.start()
    for _ in range(2_000):
        assert rest.acquire(timeout=60)
    for producer in producers:
        producer.end()
    with closing(Queue(url)) as queue:
        for colour in consumers:
            queue.send(f"stop-{colour}", None)
        for reader in readers:
            reader.join()
        for consumer in consumers.values():
            consumer.end()
        assert got == Counter(range(2_000))
        assert queue.topics() == []
    assert sound(path)


def test_eight_threads_hammer_one_queue(url: str, path: Path) -> None:
    got: list[int] = []
    cancelled: list[int] = []

    def work(first: int) -> None:
        for number in range(first, first + 50):
            sent = queue.send("t", number)
            if number % 10 == 0 and queue.cancel(sent).value == "cancelled":
                cancelled.append(number)
            for delivery in queue.receive("t", limit=3):
                got.append(delivery.body)
                delivery.ack()

    with closing(Queue(url)) as queue:
        threads = [threading.Thread(target=work, args=[first]) for first in range(0, 400, 50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        while deliveries := queue.receive("t", limit=100):
            got += [each.body for each in deliveries]
            assert all(queue.ack_many(deliveries))
        assert sorted([*got, *cancelled]) == list(range(400))
        assert queue.topics() == []
    assert sound(path)


# a lock that is held

HOLDER = """
    import select, sqlite3, sys
    connection = sqlite3.connect(sys.argv[1], isolation_level=None, timeout=30)
    connection.execute("begin immediate")
    print("held", flush=True)
    select.select([sys.stdin], [], [], float(sys.argv[2]))
    connection.execute("commit")
    connection.close()
"""


async def test_a_lock_that_is_held_for_three_seconds_delays_but_does_not_break(url: str, start: Start, path: Path) -> None:
    async with AsyncQueue(url) as queue:
        await queue.send_many("t", [1, 2])
        one, two = await queue.receive("t", limit=2)
        others: Any = [two]
        holder = start(HOLDER, path, 600)
        holder.line()
        calls = [
            asyncio.ensure_future(call)
            for call in (
                queue.send("t", "async"),
                asyncio.to_thread(queue.sync.send, "t", "sync"),
                one.ack(),
                asyncio.to_thread(queue.sync.ack_many, others),
            )
        ]
        assert (await queue.stats("t")).leased == queue.sync.stats("t").leased == 2  # looking waits for nobody
        await asyncio.wait(calls, timeout=3)
        assert not any(each.done() for each in calls)
        holder.tell()
        await asyncio.gather(*calls)
        assert {each.body for each in await queue.receive("t", limit=9)} == {"async", "sync"}
        queue.sync.close()
        holder.end()


async def test_a_lock_that_is_held_for_longer_than_our_patience_is_an_error_and_changes_nothing(
    make_queue: Callable[..., Any], start: Start, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue()
    waiting = await queue.send("t", 1, key="k")
    await queue.send("t", 2, delay=3_600)
    [delivery] = await queue.receive("t")
    before = await queue.stats("t")
    monkeypatch.setattr(file, "PATIENCE", 0.05)
    holder = start(HOLDER, path, 600)
    holder.line()
    for call in (
        lambda: queue.send("t", 3),
        lambda: queue.send_many("t", [4, 5]),
        lambda: queue.receive("t"),
        delivery.ack,
        lambda: delivery.extend("1m"),
        lambda: queue.cancel(waiting),
        lambda: queue.reschedule(waiting, delay=1),
        lambda: queue.purge("t", state="scheduled"),
        lambda: queue.pause("t"),
        lambda: make_queue().pause("t"),
    ):
        with pytest.raises(Unavailable, match=r"^Another process has held the write lock of .*\.$"):
            await call()
    assert await queue.stats("t") == before
    holder.tell()
    holder.end()
    await delivery.ack()
    assert (await queue.send("t", 6)).created


# killed

SENDS_UNTIL_IT_IS_KILLED = {
    "sync": """
        import itertools, sys
        from bide import Queue
        queue = Queue(sys.argv[1])
        for number in itertools.count():
            print(queue.send("t", number).id, flush=True)
    """,
    "async": """
        import asyncio, itertools, sys
        from bide import AsyncQueue
        async def work(queue):
            while True:
                print((await queue.send("t", "x")).id, flush=True)
        async def main():
            queue = AsyncQueue(sys.argv[1])
            await asyncio.gather(*(work(queue) for _ in range(50)))
        asyncio.run(main())
    """,
}


def test_a_process_that_is_killed_loses_nothing_that_it_said_was_accepted(
    colour: str, start: Start, url: str, path: Path
) -> None:
    for _ in range(2):
        child = start(SENDS_UNTIL_IT_IS_KILLED[colour], url)
        accepted = [child.line() for _ in range(200)]
        accepted += child.kill()
        assert sound(path)
        with closing(Queue(url)) as queue:
            delivered = set()
            while deliveries := queue.receive("t", limit=1_000):
                assert all(queue.ack_many(deliveries))
                delivered |= {each.id for each in deliveries}
            assert delivered >= {each for each in accepted if len(each) == 16}  # the last line may have been cut
            assert len(delivered) <= len(accepted) + 50
            assert queue.topics() == []


def test_a_process_that_is_killed_with_messages_in_hand_gives_them_back(start: Start, url: str, until: Until) -> None:
    with closing(Queue(url)) as queue:
        queue.send_many("t", range(10))
        child = start(
            """
            import sys
            from bide import Queue
            queue = Queue(sys.argv[1])
            got = queue.receive("t", limit=10, lease="1s")
            got[0].ack()
            print("mine", flush=True)
            sys.stdin.readline()
            """,
            url,
        )
        child.line()
        child.kill()
        assert queue.stats("t").leased == 9
        back: list[Any] = []

        def all_are_back() -> bool:
            back.extend(queue.receive("t", limit=10))
            return len(back) == 9

        until(all_are_back)
        assert {each.attempt for each in back} == {2}
        queue.ack_many(back)
        assert queue.topics() == []


def test_a_process_that_is_killed_while_it_holds_the_lock_holds_nobody_up(start: Start, url: str, path: Path) -> None:
    with closing(Queue(url)) as queue:
        queue.send("t", 1)
        holder = start(HOLDER, path, 600)
        holder.line()
        sending = threading.Thread(target=queue.send, args=["t", 2])
        sending.start()
        holder.kill()
        sending.join()
        assert queue.stats("t").ready == 2
    assert sound(path)
