# Generated from ../aio/opened.py by tools/unasync.py; change that file instead.
"""A queue from its making to its end."""

import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from bide.aside import Apart
from bide.clock import Clock
from bide.core.codec import JSON, MAX_BODY, Codec
from bide.engines.base import Capabilities, End, Ended, Finding, Move, NewMessage, Ref
from bide.engines.guard.hooks import Hook
from bide.engines.sync import Engine
from bide.errors import Unavailable
from bide.queue.gather import Gather
from bide.queue.heartbeat import Heartbeat
from bide.queue.home import Home
from bide.queue.setup import Setup
from bide.queue.sync.receiving import Intake, give_back
from bide.types import (
    CancelResult,
    Duration,
    RescheduleResult,
    Sent,
)


class Opened:
    """Opens its engine on first use, and lets go of it once."""

    def __init__(
        self,
        url: str | None = None,
        *,
        namespace: str = "bide",
        client: object | None = None,
        clock: Clock | None = None,
        dead_for: Duration = "30d",
        dead_max: int = 100_000,
        codec: Codec = JSON,
        max_body: int = MAX_BODY,
        hooks: Sequence[Hook] = (),
    ) -> None:
        """A queue at a URL: `sqlite:///bide.db`, `redis://host`, `memory://`. Nothing is opened before it is first used.

        url: without one $BIDE_URL, or else the file bide.db of the current folder. namespace: queues of one namespace see
        the same messages. client: a connection pool of your own, where the engine takes one. clock: for tests, such as
        ManualClock(). dead_for, dead_max: how long dead letters are kept, and how many of a topic. codec: how bodies become
        bytes, JSON unless you say so. max_body: the largest body, in bytes. hooks: what is told of every call.

        Raises ConfigError for a URL that can't be read or served, BadOption for an option.
        """
        self._begin(
            Setup(
                url,
                namespace=namespace,
                client=client,
                clock=clock,
                dead_for=dead_for,
                dead_max=dead_max,
                codec=codec,
                max_body=max_body,
                hooks=hooks,
            )
        )

    @classmethod
    def _of(cls, setup: Setup) -> Self:
        """Another queue of the same place, options and tasks, with its own connections."""
        made = cls.__new__(cls)
        made._begin(setup)
        return made

    def _begin(self, setup: Setup) -> None:
        self._setup = setup
        self._home = Home()
        self._lock = threading.Lock()
        self._ready: Engine | None = None
        self._closed = False

    @property
    def capabilities(self) -> Capabilities:
        """What the engine behind this queue can do."""
        return self._setup.source.capabilities

    def examine(self) -> Sequence[Finding]:
        """What an operator should know of the place where messages live: what `bide doctor` prints. Nothing is changed."""
        return self._setup.source.examine()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._setup.source.shown}>"

    def _engine(self) -> Engine:
        """The engine, opened on first use; again in a forked child, and when the event loop that used it has been closed."""
        if self._home.moved():
            self._lock = threading.Lock()
            left, self._ready = self._ready, None
            if left is not None:
                self._home.leave(self._heartbeat, left)
        ready = self._ready
        if ready is not None and not self._closed:
            return ready
        with self._lock:
            if self._closed:
                raise Unavailable("The queue is closed: make a new one.")
            if self._ready is None:
                self._ready = self._open()
            return self._ready

    def _open(self) -> Engine:
        engine = self._setup.source.sync()
        engine.open()
        self._puts: Gather[NewMessage, Sent] = Gather(engine.put)
        self._settles: Gather[End, Ended] = Gather(engine.settle)
        self._cancels: Gather[Ref, CancelResult] = Gather(engine.cancel)
        self._moves: Gather[Move, RescheduleResult] = Gather(engine.reschedule)
        self._heartbeat = Heartbeat(self._setup.source)
        self._intake = Intake(engine, self._setup.envelope, self._settles, self._heartbeat)
        return engine

    def _taking(self) -> Intake:
        self._engine()
        return self._intake

    def close(self) -> None:
        """Let go of the engine. What was being sent is seen through first; using the queue again is refused."""
        if self._closed or self._ready is None:
            self._closed = True
            return
        engine = self._engine()
        self._closed = True
        for fresh in list(self._intake.fresh):
            give_back(fresh)
        for gather in (self._puts, self._settles, self._cancels, self._moves):
            gather.close()
        Apart(self._heartbeat.close).done()
        engine.close()

    def __enter__(self) -> Self:
        self._engine()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
