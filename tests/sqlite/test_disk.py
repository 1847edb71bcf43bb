"""The disk: when it is full, and that the file does not grow for ever."""

import contextlib
import os
import sqlite3
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, Queue, QueueFull, blocking
from bide.engines.sqlite import database, deliver, file

PAGE = 4_096


class Tmpfs:
    """A disk of 1 MiB."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", folder], capture_output=True, check=False)
        if made.returncode != 0:
            pytest.skip("this user may not mount a small disk; the test with a limit in SQLite runs instead")
        self.path = folder / "bide.db"
        self._folder = folder

    def limit(self) -> None:
        """It is small from the start."""

    def grow(self) -> None:
        subprocess.run(["mount", "-o", "remount,size=64m", self._folder], check=True)

    def remove(self) -> None:
        subprocess.run(["umount", self._folder], check=True)


class Limit:
    """A limit of SQLite's own, for the connection that writes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.path = folder / "bide.db"

    def limit(self) -> None:
        self._set("max_page_count = 80")

    def grow(self) -> None:
        self._set("max_page_count = 100000")

    def _set(self, pragma: str) -> None:
        entered = database.acquire(str(self.path))
        connection = entered.writer._connection
        assert connection is not None
        connection.execute(f"pragma {pragma}")
        database.release(entered)

    def remove(self) -> None:
        """It goes with its folder."""


@pytest.fixture(params=[Tmpfs, Limit])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    made = request.param(tmp_path / "small")
    yield made
    made.remove()


@pytest.fixture
def url(disk: Any, request: pytest.FixtureRequest) -> str:
    return f"sqlite:///{disk.path}"


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[tuple[Queue, Path]]:
    """A queue on a disk with room."""
    path = tmp_path / "bide.db"
    with closing(Queue(f"sqlite:///{path}", max_body=2**24)) as queue:
        queue.stats()
        yield queue, path


def pragma(path: Path, name: str) -> Any:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(f"pragma {name}").fetchone()[0]


async def fill(queue: Any) -> dict[str, int]:
    """Send until the disk is full: what was accepted."""
    accepted: dict[str, int] = {}

    async def send() -> None:
        for number in range(5_000):
            accepted[(await queue.send("t", number, headers={"long": "x" * 800})).id] = number

    with pytest.raises(QueueFull, match=r"^The disk that holds .* is full: nothing was stored\..*\.$"):
        await send()
    assert len(accepted) > 20
    return accepted


async def drain(queue: Any, delivered: dict[str, int]) -> None:
    while deliveries := await queue.receive("t", limit=100):
        assert all(await queue.ack_many(deliveries))
        delivered.update({each.id: each.body for each in deliveries})


# full


async def test_a_full_disk_is_told_and_nothing_that_was_accepted_is_lost(queue: Any, disk: Any) -> None:
    await queue.stats()
    disk.limit()
    accepted = await fill(queue)

    # While it is full, no send is accepted, and looking goes on.
    for _ in range(3):
        with pytest.raises(QueueFull):
            await queue.send_many("t", ["x" * 300] * 1_000)
    assert (await queue.stats("t")).ready == len(accepted)
    first = next(iter(accepted))
    assert (await queue.get(first)).body == accepted[first]

    # A receiver is served as far as there is room for that, or refused; it loses nothing.
    delivered: dict[str, int] = {}
    held: list[Any] = []
    with contextlib.suppress(QueueFull):
        while held := await queue.receive("t", limit=5):
            assert all(await queue.ack_many(held))
            delivered.update({each.id: each.body for each in held})
    stats = await queue.stats("t")
    assert stats.ready + stats.leased + len(delivered) == len(accepted)

    disk.grow()
    accepted[(await queue.send("t", -1)).id] = -1
    await drain(queue, delivered)
    if (await queue.stats("t")).leased:  # taken, but there was no room to ack them
        assert all(await queue.ack_many(held))
        delivered.update({each.id: each.body for each in held})
    assert delivered == accepted
    assert await queue.topics() == []
    assert pragma(disk.path, "integrity_check") == "ok"


async def test_each_of_those_who_send_at_once_is_told_for_itself(queue: Any, disk: Any) -> None:
    await queue.stats()
    disk.limit()
    accepted: list[str] = []
    refused: list[BaseException] = []
    with closing(Queue(f"sqlite:///{disk.path}")) as threads_queue:

        def send() -> None:
            for _ in range(200):
                try:
                    accepted.append(threads_queue.send("t", "x" * 2_000).id)
                except QueueFull as full:
                    refused.append(full)

        threads = [threading.Thread(target=send) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(accepted) + len(refused) == 1_600
        assert min(len(accepted), len(refused)) > 0
    disk.grow()
    got = [each.id for each in await queue.receive("t", limit=1_000)]
    assert sorted(got) == sorted(accepted)


@pytest.mark.parametrize("disk", [Tmpfs], indirect=True)  # the other limit is the writing connection's, not the caller's
async def test_a_message_that_joined_a_transaction_is_told_of_a_full_disk_too(queue: Any, disk: Any) -> None:
    await queue.stats()
    accepted = await fill(queue)
    with closing(sqlite3.connect(disk.path)) as own:
        own.execute("pragma cache_size = 5")  # or it would be the caller's own commit that fails
        with pytest.raises(QueueFull):
            await queue.send("t", "x" * 200_000, connection=own)
    disk.grow()
    assert len(await queue.receive("t", limit=1_000)) == len(accepted)


# growth


def test_finished_messages_leave_at_once(plain: tuple[Queue, Path]) -> None:
    queue, path = plain
    for topic in ("acked", "cancelled", "purged", "replaced"):
        for number in range(20):
            queue.send(topic, "x" * (10 if number % 2 else 5_000), key=str(number))
    for delivery in queue.receive("acked", limit=20):
        delivery.ack()
    for number in range(20):
        queue.cancel(topic="cancelled", key=str(number))
        queue.send("replaced", 1, key=str(number), if_exists="replace")
    queue.purge("purged", state="ready")
    queue.ack_many(queue.receive("replaced", limit=20))
    assert queue.receive("acked") == []  # upkeep
    with closing(sqlite3.connect(path)) as other:
        for table in ("message", "large", "topic"):
            assert other.execute(f"select count(*) from {table}").fetchone() == (0,)


def test_pages_that_are_free_are_used_again(plain: tuple[Queue, Path]) -> None:
    queue, path = plain
    sizes = []
    for _ in range(6):
        queue.send_many("t", ["x" * 2_000] * 300)
        assert all(queue.ack_many(queue.receive("t", limit=300)))
        sizes.append(pragma(path, "page_count"))
    assert sizes[-1] <= sizes[0] * 1.1


def test_a_file_that_was_much_longer_shrinks_with_upkeep(plain: tuple[Queue, Path]) -> None:
    queue, path = plain
    assert pragma(path, "auto_vacuum") == 2  # which can't be had later
    queue.send("other", "stays", delay=3_600)
    queue.send_many("t", ["x" * 20_000] * 700)
    longest = pragma(path, "page_count")
    assert all(queue.ack_many(queue.receive("t", limit=1_000)))
    assert pragma(path, "freelist_count") > longest * 0.9
    pages = []
    for _ in range(10):
        queue.receive("t")  # nothing to do: upkeep
        pages.append(pragma(path, "page_count"))
    assert pages[-1] < longest / 2
    assert pages[-1] <= 2 * deliver.GIVE_BACK
    queue.close()  # what is cut in the log reaches the file with a checkpoint
    assert path.stat().st_size == pages[-1] * PAGE
    assert pragma(path, "integrity_check") == "ok"
    with closing(Queue(f"sqlite:///{path}")) as again:
        assert again.stats("other").scheduled == 1


@pytest.fixture
def short_log(monkeypatch: pytest.MonkeyPatch) -> int:
    """The settings of the write-ahead log, forty times smaller."""
    monkeypatch.setattr(file, "PAGES_BETWEEN_CHECKPOINTS", file.PAGES_BETWEEN_CHECKPOINTS // 40)
    monkeypatch.setattr(file, "WAL_LIMIT", file.WAL_LIMIT // 40)
    return file.WAL_LIMIT


def work(queue: Queue, rounds: int) -> int:
    for _ in range(rounds):
        queue.send_many("t", ["x" * 20_000] * 10)
        assert all(queue.ack_many(queue.receive("t", limit=10)))
    return rounds * 10 * 20_000


def log_of(path: Path) -> int:
    return Path(f"{path}-wal").stat().st_size


def test_the_log_stays_short_however_much_is_written(short_log: int, plain: tuple[Queue, Path]) -> None:
    queue, path = plain
    longest = 0
    written = 0
    while written < 10 * short_log:
        written += work(queue, 5)
        longest = max(longest, log_of(path))
    assert longest < short_log
    assert path.stat().st_size < short_log


def test_a_log_that_a_long_reader_made_long_is_cut_back_when_the_reader_is_gone(
    short_log: int, plain: tuple[Queue, Path]
) -> None:
    queue, path = plain
    work(queue, 1)
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from message").fetchone()
        while log_of(path) < 2 * short_log:
            work(queue, 5)
        reader.execute("commit")
    work(queue, 10)
    assert log_of(path) <= short_log


def test_a_last_close_leaves_one_file(plain: tuple[Queue, Path]) -> None:
    queue, path = plain
    queue.send("t", 1)
    assert {each.name for each in path.parent.iterdir()} == {"bide.db", "bide.db-wal", "bide.db-shm"}
    queue.close()
    assert [each.name for each in path.parent.iterdir()] == ["bide.db"]


async def test_a_place_that_is_left_by_all_is_let_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocking, "LINGER", 1_000.0)  # the thread that reads is told to end too, and does not just grow tired
    path = tmp_path / "bide.db"
    before, others = threading.active_count(), threading.enumerate()
    opened = set(database._databases)  # by other tests, whose event loops were closed before their queues
    queues = [Queue(f"sqlite:///{path}"), Queue(f"sqlite:///{path}", namespace="other")]
    both = AsyncQueue(f"sqlite:///{path}")
    await both.send("t", 1)
    assert (await both.stats("t")).ready == 1
    for queue in queues:
        queue.receive("u", wait="10ms")
    assert "bide-sqlite-reader" in {thread.name for thread in threading.enumerate()}
    assert database._databases.keys() - opened == {str(path)}
    await both.close()
    for queue in queues:
        queue.close()
    assert database._databases.keys() <= opened
    for thread in threading.enumerate():
        if thread.name.startswith("bide-sqlite") and thread not in others:
            thread.join(10)  # it has been told to end
            assert not thread.is_alive()
    assert threading.active_count() <= before + 2  # asyncio's own, for what it hands to threads
    assert os.listdir(tmp_path) == ["bide.db"]
