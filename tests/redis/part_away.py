"""Everything of the API in use on three parts, sync and async; one part goes away for a while; and what came of it."""

import asyncio
import contextlib
import functools
import json
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Protocol, Self

from bide import Queue
from bide.engines.redis.topology import Generation, read, slot_of
from tests.redis import newcomer
from tests.redis.book import PROMPT, Book, Call, Window, table
from tests.redis.hands import PARTS, AsyncHand, Here, Ledger, Names, SyncHand, drive, guarded
from tests.redis.holders import Holders
from tests.redis.labour import STOPPED, Feeding, Labour
from tests.redis.users import HEARD, Deed, Users
from tests.servers.cluster import ClusterNode, RedisCluster

PATIENCE = 240.0
END = 12.0  # seconds for a worker to end, on a machine that is busy: less than its grace, which is for handlers
AT_ONCE = 1.0  # seconds in which nobody can know that a part has gone
SOME = 6.0  # seconds
NONE = -1
ROOT = Path(__file__).parents[2]
HELD = tuple(f"held.{colour}" for colour in ("async", "sync"))
APP = """
import asyncio
from bide import AsyncQueue

queue = AsyncQueue({url!r})

@queue.task({topic!r}, lock="{{gate}}")
async def work(gate: str, at: int) -> None:
    await asyncio.sleep(0.05)
"""


def generation_of(cluster: RedisCluster) -> Generation:
    """How the queue of a Cluster is spread."""
    anchor = cluster.node_of(slot_of("bide:0"))
    return read(anchor.ask("HGET", "{bide:0}:meta", "shards").decode()).current


def node_of(cluster: RedisCluster, part: int) -> ClusterNode:
    return cluster.node_of(slot_of(generation_of(cluster).tag("bide", part)))


class Expecting(Protocol):
    def expected(self) -> list[tuple[str, frozenset[int]]]: ...


class Crowd:
    """For `with`: all are at work in the block. At its end they wait until all is received that was accepted."""

    def __init__(self, cluster: RedisCluster, folder: Path, options: str = "", slots: int = 100) -> None:
        """`slots`: of the worker. 30 are soon taken if each message keeps one whose gate is in the part that is away."""
        self.book, self.ledger = Book(), Ledger()
        self.windows: list[Window] = []
        self.lost: set[int] = set()  # parts whose server has died, and what it did last with it
        self.unconfirmed = False  # a part does all, and can't confirm it: who sends to any part may be told so
        self._url, self._folder = cluster.url + options, folder
        with Queue(self._url) as queue:
            queue.stats()  # now it is known how its messages are spread
        self._quiet, self._over, self._release = threading.Event(), threading.Event(), threading.Event()
        self._loop = asyncio.new_event_loop()
        self._runner = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._at_work: dict[Future[None], str] = {}
        self._names = Names(generation_of(cluster))
        made = [AsyncHand(self._url, self.book), SyncHand(self._url, self.book)]
        events = (self._quiet, self._over)
        self._both = [Here(hand, self._names, self.book, self.ledger, *events) for hand in made]
        self._users = list(map(Users, self._both))
        self._feeding = Feeding(self._both[1])
        self._labour = Labour(self._url, self._names, self.book, self.ledger, self._release, slots)

    def __enter__(self) -> Self:
        self._runner.start()
        self._thread(functools.partial(self.book.watch, self._over))
        self._thread(self._labour.run)
        for here, users in zip(self._both, self._users, strict=True):
            self._start(here, users.deeds())
        self._start(self._both[1], self._feeding.deeds())
        self.wait_for_all(2)
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            for event in (self._quiet, self._release, self._over, self._labour.over):
                event.set()
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._runner.join(PATIENCE)
            self._loop.close()

    def wait_for_all(self, many: int = 1) -> None:
        """Until so many more of each kind have ended well, on each part."""
        working: list[Expecting] = [self._labour, self._feeding, *self._users]
        expected = [each for some in working for each in some.expected()]
        self.book.wait_for_each(expected, many, PATIENCE)

    @contextlib.contextmanager
    def without(self, part: int, seconds: float) -> Iterator[Callable[[], None]]:
        """`part`: or NONE, if it is none that goes.

        Call what it gives when the part has gone: that takes so long. At the end of the block it is to be back."""
        self._hold()
        others = [each for each in PARTS if each != part]
        with self._worker() as worker:
            began, gone = time.monotonic(), list[float]()

            def meanwhile() -> None:
                gone.append(time.monotonic())
                self._meanwhile(others, worker, gone[0] + seconds)

            yield meanwhile
            self.windows.append(Window(part, began, gone[0], time.monotonic()))
        self.wait_for_all()
        self._release.set()

    def _hold(self) -> None:
        """Leases and locks, from now on; and others try to take them."""
        holders = [Holders(here, self._release) for here in self._both]
        self._start(self._both[1], [self._feeding.begin_long_ones])
        for here, each in zip(self._both, holders, strict=True):
            self._start(here, each.deeds())
        for each in holders:
            each.wait_until_held(PATIENCE)
        self._labour.wait_for_long_ones(PATIENCE)
        for here, each in zip(self._both, holders, strict=True):
            self._start(here, each.thieves())

    def _meanwhile(self, others: Sequence[int], worker: "subprocess.Popen[bytes]", until: float) -> None:
        commands = self._thread(lambda: self._commands(others[0], until - SOME))
        ended = self._thread(lambda: self._end(worker))
        closed = [self._closing(here, others) for here in self._both]
        for each in (commands, ended, *closed):
            each.result(PATIENCE)
        self._over.wait(max(0.0, until - time.monotonic()))
        if self.book.broken:
            raise self.book.broken[0]

    def _commands(self, part: int, until: float) -> None:
        """What starts now, one after the other, as long as there is time."""
        for colour in ("async", "sync"):
            if time.monotonic() > until:
                return
            words = [self._url, colour, self._names.key(newcomer.TOPIC, part), self._names.value(part)]
            for line in self._run(f"new {colour} program", "tests.redis.newcomer", *words).splitlines():
                what, seconds, error = json.loads(line)
                self.book.note(f"new {colour} {what}", [], time.monotonic() - seconds, error)
        key = self._names.key(newcomer.TOPIC, part)
        for name, *words in (("send", newcomer.TOPIC, "1", "--key", key), ("stats",), ("topics",), ("list", newcomer.TOPIC)):
            if time.monotonic() < until:
                self._run(f"bide {name}", "bide", name, *words, "--url", self._url)

    def _run(self, what: str, *words: str) -> str:
        """A program is prompt if it takes little more than one that only starts, at the same time."""
        (usual, *_), (seconds, out, error) = _ran("bide", "--version"), _ran(*words)
        self.book.note(what, [], time.monotonic() - seconds, error, PROMPT + 2 * usual)
        return out

    @contextlib.contextmanager
    def _worker(self) -> Iterator["subprocess.Popen[bytes]"]:
        """The command, with tasks that have a lock."""
        (self._folder / "app.py").write_text(APP.format(url=self._url, topic=STOPPED), encoding="utf-8")
        command = [sys.executable, "-m", "bide", "worker", "app:queue"]
        with (self._folder / "worker.log").open("wb") as log, Queue(self._url) as queue:
            worker = subprocess.Popen(command, cwd=self._folder, stderr=log, stdout=log)
            try:
                give_up = time.monotonic() + PATIENCE
                while not queue.stats(STOPPED).leased:  # the book's users send to it all the time
                    assert time.monotonic() < give_up, (self._folder / "worker.log").read_text()
                    time.sleep(0.01)
                yield worker
            finally:
                worker.kill()
                worker.wait()

    def _end(self, worker: "subprocess.Popen[bytes]") -> None:
        self._over.wait(SOME)
        began = time.monotonic()
        worker.send_signal(signal.SIGTERM)
        code = worker.wait(PATIENCE)
        self.book.note("a worker's end after SIGTERM", [], began, f"exit code {code}" if code else "", END)

    def _closing(self, here: Here, parts: Sequence[int]) -> "Future[None]":
        """Of a queue that has sends under way to all parts."""
        other = here.other()

        async def close() -> None:
            for part in parts:
                send = functools.partial(other.hand.queue.send, newcomer.TOPIC, key=here.names.key(newcomer.TOPIC, part))
                await other.do("send before a close", [part], send)
            await other.hand.pause()
            await other.do("close", [], other.hand.queue.close)

        return self._start(here, [close])[0]

    def _finish(self) -> None:
        """Until all is received that was accepted, and all have ended."""
        self._quiet.set()
        give_up = time.monotonic() + PATIENCE
        while self.ledger.left(self.lost) and time.monotonic() < give_up:
            time.sleep(0.05)
        self._over.set()
        self._labour.over.set()
        with Queue(self._url) as queue:
            while (going := [name for each, name in self._at_work.items() if not each.done()]) and not self.book.broken:
                assert time.monotonic() < give_up + PATIENCE, f"these do not end: {going}"
                for topic in (HEARD, *HELD):  # those who listen wait for one more
                    queue.send(topic)
                time.sleep(0.2)
        if self.book.broken:
            raise self.book.broken[0]
        for here in self._both:
            [closed] = self._start(here, [here.hand.close_all])
            closed.result(PATIENCE)

    def _start(self, here: Here, deeds: Sequence[Deed]) -> list["Future[None]"]:
        started = []
        for deed in deeds:
            what = guarded(deed(), self.book)
            if here.hand.colour == "async":
                started.append(asyncio.run_coroutine_threadsafe(what, self._loop))
                self._at_work[started[-1]] = f"async {deed}"
            else:
                started.append(self._thread(functools.partial(drive, what)))
        return started

    def _thread(self, what: Callable[[], None]) -> "Future[None]":
        done: Future[None] = Future()

        def run() -> None:
            try:
                what()
            except BaseException as error:
                self.book.breaks(error)
                done.set_exception(error)
            else:
                done.set_result(None)

        threading.Thread(target=run, daemon=True).start()
        self._at_work[done] = str(what)
        return done


def _ran(*words: str) -> tuple[float, str, str]:
    """A module of Python: the seconds it took, what it printed, and its error if it failed."""
    began = time.monotonic()
    command = [sys.executable, "-m", *words]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=2 * PATIENCE)
    return time.monotonic() - began, ended.stdout, ended.stderr or "it failed" if ended.returncode else ""


def verdict(crowd: Crowd) -> list[str]:
    """What may not be."""
    wrong = [f"{topic}: {many} were accepted and never came" for topic, many in crowd.ledger.left(crowd.lost).items()]
    wrong += [f"{id} came too early" for id in crowd.ledger.early]
    gone = {window.part for window in crowd.windows}
    again = crowd.ledger.again(gone)
    wrong += [f"{many} of {topic} came again" for topic, many in again.items()]
    wrong += [f"{body} was sent once and is there {many} times" for body, many in crowd.ledger.doubled().items()]
    accused = Counter(what for what, parts in crowd.book.accused if not gone & parts)
    wrong += [f"{what}, {many} times" for what, many in accused.items()]
    calls = [call for call in crowd.book.calls() if not (crowd.unconfirmed and _may_be_unconfirmed(call))]
    under_way = Counter(call.what for window in crowd.windows for call in calls if was_under_way(call, window))
    wrong += [f"{many} {what} were under way to the part that went" for what, many in under_way.items() if many > 1]
    calls = [call for call in calls if not any(was_under_way(call, window) for window in crowd.windows)]
    for window in crowd.windows:
        for what, found in sorted(crowd.book.held_up(calls, window).items()):
            failed, worst = [call for call in found if call.error], max(found, key=lambda each: each.seconds)
            after = worst.began - window.began
            wrong.append(f"{len(found)} {what}: {len(failed)} failed, such as, begun {after:.1f} s after it had gone: {worst}")
            wrong += [f"{what} failed: {failed[0].error}"] if failed else []
    return wrong


def _may_be_unconfirmed(call: Call) -> bool:
    return not call.parts and " send" in call.what and "ConfirmTimeout" in call.error


def was_under_way(call: Call, window: Window) -> bool:
    """It had gone to a part as that went away, and nobody can know whether it was done there."""
    at_once = window.began - PROMPT < call.began < window.gone + AT_ONCE
    return at_once and not call.parts and " send" in call.what and "OutcomeUnknown" in call.error


def report(crowd: Crowd) -> str:
    calls = crowd.book.calls()
    return "\n".join(table(calls, window) for window in crowd.windows)
