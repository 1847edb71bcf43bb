"""One file, both colours, and other processes."""

import asyncio
import functools
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bide
from bide import AsyncQueue, Delivery, Queue
from bide.engines.base import Settings
from bide.engines.sqlite import source
from bide.queue.aio import receive as aio_receiving
from bide.queue.sync import receive as sync_receiving


class Awaited:
    """Offers a sync object's methods as coroutines, and its deliveries likewise."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        return functools.partial(self._call, found) if callable(found) else found

    async def _call(self, method: Callable[..., Any], *args: Any, **options: Any) -> Any:
        plain = [[getattr(each, "inner", each) for each in arg] if isinstance(arg, list) else arg for arg in args]
        answer = await asyncio.to_thread(method, *plain, **options) if options.get("wait") else method(*plain, **options)
        if isinstance(answer, list):
            return [Awaited(each) if isinstance(each, Delivery) else each for each in answer]
        return answer


class Child:
    """Another process that runs a script. It prints lines to us, and reads lines from us."""

    def __init__(self, script: str, *args: object) -> None:
        home = str(Path(bide.__file__).parents[1])
        self._process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, args)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": home, "PYTHONUNBUFFERED": "1"},
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output = self._process.stdin, self._process.stdout

    def line(self) -> str:
        """The next line that it prints; a child that ends without one has failed."""
        line = self._output.readline()
        if not line:
            self.end()
            raise AssertionError("the child ended without a word")
        return line.rstrip("\n")

    def tell(self, line: str = "") -> None:
        self._input.write(line + "\n")
        self._input.flush()

    def end(self) -> list[str]:
        """Let it come to its end by itself, without a complaint: the rest of what it printed."""
        rest, complaints = self._process.communicate()
        assert complaints == ""
        assert self._process.returncode == 0
        return rest.splitlines()

    def complaint(self) -> str:
        """Let it come to its end by itself: what it complained about."""
        _, complaints = self._process.communicate()
        assert self._process.returncode == 0
        return complaints

    def kill(self) -> list[str]:
        """End it at once: what it had printed by then."""
        self._process.send_signal(signal.SIGKILL)
        said = self._output.read()  # and not communicate(), which forgets what was read ahead with the last line
        self._process.wait()
        return said.splitlines()

    def clean_up(self) -> None:
        with self._process:
            if self._process.poll() is None:
                self._process.kill()


def children() -> Iterator[Callable[..., Child]]:
    started: list[Child] = []

    def start(script: str, *args: object) -> Child:
        started.append(Child(script, *args))
        return started[-1]

    yield start
    for child in started:
        child.clean_up()


start = pytest.fixture(children, name="start")  # starts children, and ends those that are left at the end of the test
start_child = pytest.fixture(children, scope="module", name="start_child")  # or of the module


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bide.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture(params=["async", "sync"])
def colour(request: pytest.FixtureRequest) -> str:
    which: str = request.param
    return which


@pytest.fixture
async def make_queue(colour: str, url: str) -> AsyncIterator[Callable[..., Any]]:
    """Makes queues of one colour on the test's file, and closes them."""
    made: list[Any] = []

    def make(where: str = url, **options: Any) -> Any:
        made.append(AsyncQueue(where, **options) if colour == "async" else Awaited(Queue(where, **options)))
        return made[-1]

    yield make
    for queue in made:
        await queue.close()


@pytest.fixture
def queue(make_queue: Callable[..., Any]) -> Any:
    return make_queue()


@pytest.fixture
async def engine(colour: str, url: str) -> AsyncIterator[Any]:
    """The seam itself, for what no verb of a queue offers."""
    made = source(Settings(url=url))
    opened: Any = made.aio() if colour == "async" else Awaited(made.sync())
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def no_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Receivers claim when they are woken, and not also every few seconds."""
    for colour in (aio_receiving, sync_receiving):
        monkeypatch.setattr(colour, "SWEEP", 3_600.0)


@pytest.fixture
def until() -> Callable[[Callable[[], bool]], None]:
    """Waits for something that other threads or processes bring about."""

    def wait(true: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not true():
            assert time.monotonic() < end, "it did not come about in a minute"
            time.sleep(0.001)

    return wait
