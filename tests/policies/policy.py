"""One thing that a task or its messages can be asked for, with what must be true of it beside any other."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bide import AsyncQueue, AsyncTask, Sent, Worker, current
from tests.worker.conftest import once
from tests.worker.faults import Faults

COUNT = 12
USERS = 3
TOPIC = "work"


def now_ms() -> float:
    return time.time() * 1000


class Run(NamedTuple):
    """A handler was called."""

    n: int
    at: float  # epoch ms
    attempt: int
    told: int  # what the message says that was sent last under its key


class Journal:
    """What handlers did."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.done: Counter[int] = Counter()
        self.running: Counter[int] = Counter()  # by user
        self.most: Counter[int] = Counter()
        self.most_at_once = 0

    def begins(self, n: int, told: int) -> None:
        self.runs.append(Run(n, now_ms(), current().attempt, told))
        user = n % USERS
        self.running[user] += 1
        self.most[user] = max(self.most[user], self.running[user])
        self.most_at_once = max(self.most_at_once, self.running.total())

    def ends(self, n: int) -> None:
        self.running[n % USERS] -= 1

    def of(self, n: int) -> list[Run]:
        return [each for each in self.runs if each.n == n]


class Stage:
    """What policies act on."""

    def __init__(self, queue: AsyncQueue, faults: Faults, policies: "Sequence[Policy]") -> None:
        self.queue = queue
        self.faults = faults
        self.journal = Journal()
        self.sent: dict[int, Sent] = {}
        self.workers: list[Worker] = []
        self._policies = policies
        self._probes: list[int] = []
        self._probe = queue.task("probe")(self._probed)
        made: Callable[[Any], AsyncTask[..., Any]] = queue.task(TOPIC, **self._options("options"))
        self._task = made(self._handle)

    @property
    def alive(self) -> list[int]:
        """The messages that are to be handled."""
        return [n for n in range(COUNT) if not any(each.drops(n) for each in self._policies)]

    @property
    def over(self) -> bool:
        return all(self.journal.done[n] for n in self.alive)

    async def send(self, n: int, told: int) -> Sent:
        sent: Sent = await self._task.options(**self._options("sending", n)).send(n=n, user=n % USERS, told=told)
        return sent

    async def probe(self) -> None:
        """A message of another topic is sent and handled."""
        before = len(self._probes)
        await self._probe.send(n=before)
        await once(lambda: len(self._probes) > before)

    async def play(self) -> None:
        """Send all, have two workers handle it, and see what the policies say."""
        await self._each("begin")
        for n in range(COUNT):
            self.sent[n] = await self.send(n, told=1)
        await self._each("send")
        async with Worker(self.queue, grace=0) as first, Worker(self.queue, grace=0) as second:
            self.workers = [first, second]
            async with asyncio.TaskGroup() as group:
                for each in self._policies:
                    group.create_task(each.work(self))
                group.create_task(once(lambda: self.over))
            await self._ended()
        self._check()

    async def _ended(self) -> None:
        """Nothing that was sent is left in the engine."""

        async def gone() -> bool:
            await self.queue.purge(TOPIC, state="dead")
            found = await self.queue.stats(TOPIC)
            return not (found.pending + found.leased)

        await once(gone)

    def _check(self) -> None:
        done = self.journal.done
        assert not [n for n in done if n not in self.alive], "handled, and should not have been"
        for each in self._policies:
            each.check(self)
        if not any(each.repeats for each in self._policies):
            assert set(done.values()) == {1}, "handled twice"
            for n in self.alive:
                attempts = [run.attempt for run in self.journal.of(n)]
                assert attempts[-1] == 1 + sum(each.again for each in self._policies), attempts

    async def _each(self, part: str) -> None:
        for each in self._policies:
            await getattr(each, part)(self)

    def _options(self, part: str, *of: int) -> dict[str, Any]:
        return {name: value for each in self._policies for name, value in getattr(each, part)(*of).items()}

    async def _handle(self, n: int, user: int, told: int) -> None:
        self.journal.begins(n, told)
        try:
            for each in self._policies:
                await each.handle(n)
            await asyncio.sleep(0.001)
        finally:
            self.journal.ends(n)
        self.journal.done[n] += 1

    async def _probed(self, n: int) -> None:
        self._probes.append(n)


class Policy:
    exclusive: str = ""  # of policies with the same word here, a task can have one
    again = 0  # further attempts that each message needs
    repeats = False  # a message may be handled twice, or its attempts begin anew

    def __init__(self) -> None:
        self.met: set[int] = set()

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    def options(self) -> dict[str, Any]:
        """Of the task."""
        return {}

    def sending(self, n: int) -> dict[str, Any]:
        """Options of a send."""
        return {}

    async def begin(self, stage: Stage) -> None:
        """Before anything is sent."""

    async def send(self, stage: Stage) -> None:
        """When all is sent, before there is a worker."""

    async def work(self, stage: Stage) -> None:
        """While there are workers."""

    async def handle(self, n: int) -> None:
        """In the handler."""

    def first(self, n: int) -> bool:
        """Whether its handler has not come this far with this message before."""
        if n in self.met:
            return False
        self.met.add(n)
        return True

    def drops(self, n: int) -> bool:
        """Whether a message is not to be handled."""
        return False

    def check(self, stage: Stage) -> None:
        """When all is over."""
