"""A file that is removed, moved or replaced under its users: they are told, and nothing is accepted that nobody would see."""

import asyncio
import os
import shutil
import sqlite3
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from bide import Call, Hook, ManualClock, OutcomeUnknown, Queue, Unavailable
from bide.engines.sqlite import database, watch
from bide.engines.sqlite.watch import FileGone, FileIdentity

pytestmark = pytest.mark.skipif(os.name != "posix", reason="elsewhere a file that is open can't be removed")

VERBS: dict[str, Callable[[Any, Any], Any]] = {
    "send": lambda queue, held: queue.send("t", "lost"),
    "receive": lambda queue, held: queue.receive("t"),
    "ack": lambda queue, held: held.ack(),
    "cancel": lambda queue, held: queue.cancel(topic="t", key="k"),
    "stats": lambda queue, held: queue.stats("t"),
    "get": lambda queue, held: queue.get(topic="t", key="k"),
}


async def each_is_refused(queue: Any, held: Any, match: str) -> None:
    for verb in VERBS.values():
        with pytest.raises(Unavailable, match=match):
            await verb(queue, held)


@pytest.fixture(params=["busy", "quiet"])
def folder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder that has changed a moment ago is not trusted; here never, or at once."""
    monkeypatch.setattr(watch, "TICK", 0 if request.param == "quiet" else 2**63)


async def in_use(queue: Any, folder: Path) -> Any:
    """With a message that is held, and one that is not. From then on, a change of the folder has a later time."""
    await queue.send("held", 1)
    await queue.send("t", "kept", key="k")
    [held] = await queue.receive("held")
    await queue.stats()
    settle(folder)
    return held


def settle(folder: Path) -> None:
    """Until the next change of a folder has a later time than the last."""
    probe = folder.with_name("probe")
    probe.touch()
    while probe.stat().st_ctime_ns <= folder.stat().st_ctime_ns:
        probe.touch()


def content(path: Path, ending: str) -> bytes:
    return Path(f"{path}{ending}").read_bytes()


def beside(path: Path) -> Path:
    return path.with_name("elsewhere.db")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
async def test_a_file_that_is_moved_away_is_told_and_goes_on_when_it_is_put_back(ending: str, queue: Any, path: Path) -> None:
    held = await in_use(queue, path.parent)
    part = Path(f"{path}{ending}")
    os.rename(part, beside(path))
    await each_is_refused(queue, held, r"removed .* start(ed)? again")
    assert part.name not in os.listdir(path.parent)  # and no new one was made
    os.rename(beside(path), part)
    await held.ack()
    assert [each.body for each in await queue.receive("t", limit=9)] == ["kept"]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
async def test_a_file_that_is_replaced_is_told_and_left_alone(ending: str, queue: Any, path: Path) -> None:
    held = await in_use(queue, path.parent)
    other = beside(path)
    with closing(Queue(f"sqlite:///{other}")) as there:
        there.send("t", "of the other")
    shutil.copy(other, part := Path(f"{path}{ending}.new"))
    os.replace(part, f"{path}{ending}")
    before = content(path, ending)
    await each_is_refused(queue, held, "replaced")
    assert content(path, ending) == before


@pytest.mark.usefixtures("folder")
async def test_a_folder_that_is_removed_is_told(make_queue: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    queue = make_queue(f"sqlite:///{tmp_path}/folder/bide.db")
    held = await in_use(queue, tmp_path / "folder")
    shutil.rmtree(tmp_path / "folder")
    await each_is_refused(queue, held, "removed")


@pytest.mark.usefixtures("folder")
async def test_a_link_that_is_turned_to_another_file_is_told(make_queue: Callable[..., Any], path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    queue = make_queue(f"sqlite:///{link}")
    held = await in_use(queue, path.parent)
    with closing(Queue(f"sqlite:///{beside(path)}")) as there:
        there.send("t", 1)
    link.unlink()
    link.symlink_to(beside(path))
    await each_is_refused(queue, held, "replaced")


@pytest.mark.usefixtures("folder")
async def test_a_transaction_of_the_callers_is_not_joined_either(queue: Any, path: Path) -> None:
    await in_use(queue, path.parent)
    with closing(sqlite3.connect(path)) as own:
        os.rename(path, beside(path))
        with pytest.raises(Unavailable, match="removed"):
            await queue.send("t", 1, connection=own)


class Lying(Hook):
    """Tells when somebody is about to lie down."""

    def __init__(self) -> None:
        self.about = threading.Event()

    def before(self, call: Call) -> None:
        if call.verb == "wait":
            self.about.set()


async def test_who_sleeps_is_told(make_queue: Callable[..., Any], path: Path) -> None:
    lying = Lying()
    queue = make_queue(hooks=[lying])
    await queue.send("t", 1, delay="1h")
    receiving = asyncio.ensure_future(queue.receive("t", wait="100s"))
    assert await asyncio.to_thread(lying.about.wait, 60)
    os.unlink(path)
    with pytest.raises((Unavailable, OutcomeUnknown), match="removed"):
        await receiving  # it may have gone to look once more already


class Removing(ManualClock):
    """A clock that removes a file when it is read, which for a message that is due at once happens in the transaction."""

    path: Path | None = None

    def now_ns(self) -> int:
        if self.path is not None:
            self.path.unlink(missing_ok=True)
        return super().now_ns()


async def test_what_was_under_way_when_the_file_went_is_not_called_accepted(make_queue: Callable[..., Any], path: Path) -> None:
    clock = Removing()
    queue = make_queue(clock=clock)
    await queue.send("t", 1)
    clock.path = path
    with pytest.raises(OutcomeUnknown, match=r"removed .* old file"):
        await queue.send("t", 2)
    with pytest.raises(Unavailable, match="removed"):
        await queue.send("t", 3)


async def test_a_queue_that_was_closed_begins_with_what_is_there_and_leaves_it_whole(
    make_queue: Callable[..., Any], path: Path, url: str, start: Callable[..., Any]
) -> None:
    old = make_queue()
    await old.send("t", "old")
    for each in list(path.parent.iterdir()):
        each.unlink()
    child = start(
        """
        import sys
        from bide import Queue
        with Queue(sys.argv[1]) as queue:
            queue.send("t", "new")
            print("sent")
            input()
        """,
        url,
    )
    assert child.line() == "sent"
    await old.close()  # SQLite removes a log when its last user leaves: not this one, which is the other's
    new = make_queue()
    assert [each.body for each in await new.receive("t", limit=9)] == ["new"]
    child.tell()
    child.end()


def test_a_file_that_went_during_a_fork_is_not_made_anew(path: Path, url: str) -> None:
    with closing(Queue(url)) as queue:
        queue.send("t", 1)
        queue.stats()
        here = database.acquire(str(path))
        here.before_fork()
        path.unlink()
        here.after_fork()
        with pytest.raises(Unavailable, match="removed"):
            queue.send("t", 2)
        with pytest.raises(Unavailable, match="removed"):
            queue.stats()
        database.release(here)
    assert not path.exists()


def test_a_fork_that_takes_the_companions_along_during_a_look_is_no_loss(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wal = Path(f"{path}-wal")
    for each in (path, wal):
        each.touch()
    identity, stat = FileIdentity(str(path)), os.stat
    identity.opened()

    def stat_after_a_fork(name: Any, **how: Any) -> os.stat_result:
        if name == str(wal):
            identity.closed()
            wal.unlink(missing_ok=True)
        return stat(name, **how)

    monkeypatch.setattr("bide.engines.sqlite.watch.os.stat", stat_after_a_fork)
    identity.check()
    assert not wal.exists()


@pytest.mark.usefixtures("folder")
def test_while_its_folder_does_not_change_one_look_is_enough(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.touch()
    identity, stat = FileIdentity(str(path)), os.stat
    seen: list[str] = []

    def noted(name: Any, **how: Any) -> os.stat_result:
        seen.append(name)
        return stat(name, **how)

    monkeypatch.setattr("bide.engines.sqlite.watch.os.stat", noted)
    identity.check()
    seen.clear()
    identity.check()
    quiet = watch.TICK == 0
    assert seen == ([str(path.parent)] if quiet else [str(path.parent), str(path)])


@pytest.mark.parametrize(
    ("times", "later"),
    [
        pytest.param(lambda found: {"st_ctime_ns": 1}, 0.0, id="mtime-only"),
        pytest.param(lambda found: {"st_ctime_ns": 0, "st_mtime_ns": 0}, 0.0, id="no-times"),
        pytest.param(lambda found: {"st_ctime_ns": 1, "st_mtime_ns": 1}, 1.1, id="times-that-stand-still"),
    ],
)
def test_a_folder_whose_times_do_not_tell_of_a_removal_is_not_trusted(
    times: Callable[[os.stat_result], dict[str, int]], later: float, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first two as on FAT and exFAT, the third as when something is mounted on the file."""
    path.touch()
    settle(path.parent)
    identity, stat, clock = FileIdentity(str(path)), os.stat, time.monotonic()

    def told(name: Any, **how: Any) -> Any:
        found = stat(name, **how)
        if name != str(path.parent):
            return found
        known = {each: getattr(found, each) for each in ("st_dev", "st_ino", "st_ctime_ns", "st_mtime_ns")}
        return SimpleNamespace(**known | times(found))

    monkeypatch.setattr(watch, "TICK", 0)
    monkeypatch.setattr("bide.engines.sqlite.watch.os.stat", told)
    monkeypatch.setattr("bide.engines.sqlite.watch.time.monotonic", lambda: clock)
    identity.check()
    path.unlink()
    clock += later
    with pytest.raises(FileGone, match="removed"):
        identity.check()
