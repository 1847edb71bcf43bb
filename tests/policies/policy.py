"""One thing that a task or its messages can be asked for, with what must be true of it beside any other."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from bide import AsyncDelivery, AsyncQueue, Failed, Sent, Worker, current, current_batch
from bide.engines.gates import Spent
from tests.worker.conftest import once
from tests.worker.faults import Call, Faults

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
    told: Any  # what the message says that was sent last under its key; of merged messages, what all of them say
    due: int = 0  # epoch ms


class Grant(NamedTuple):
    """An instant at which something may begin, by a rate."""

    gate: str
    holder: str | None
    now: int  # when it was given
    at: int


Item: TypeAlias = dict[str, Any]  # of a batch: the arguments of one message


class Journal:
    """What handlers did."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.instants: list[Run] = []  # of a schedule; n is minus the instant
        self.done: Counter[int] = Counter()
        self.running: Counter[int] = Counter()  # by user
        self.most: Counter[int] = Counter()
        self.most_at_once = 0
        self.sizes: list[int] = []  # of batches
        self.cut: Counter[int] = Counter()  # handlers that were told to stop

    def begins(self, n: int, told: Any, delivery: AsyncDelivery) -> None:
        (self.runs if n >= 0 else self.instants).append(Run(n, now_ms(), delivery.attempt, told, delivery.due))
        user = user_of(n)
        self.running[user] += 1
        self.most[user] = max(self.most[user], self.running[user])
        self.most_at_once = max(self.most_at_once, self.running.total())

    def ends(self, n: int) -> None:
        self.running[user_of(n)] -= 1

    def of(self, n: int) -> list[Run]:
        return [each for each in self.runs if each.n == n]


class Stage:
    """What policies act on."""

    def __init__(self, queue: AsyncQueue, faults: Faults, policies: "Sequence[Policy]") -> None:
        self.queue = queue
        self.faults = faults
        self.journal = Journal()
        self.sent: dict[int, Sent] = {}
        self.moved: set[int] = set()  # by hand
        self.workers: list[Worker] = []
        self.granted: list[Grant] = []
        faults.around["gates.spend"] = self._spend
        self._policies = policies
        self._probes: list[int] = []
        self._probe: Any = queue.task("probe")(self._probed)
        options = self._options("options")
        self.in_batches, self._merges = "batch" in options, any(each.merges for each in policies)
        handle: Any = self._handle_batch if self.in_batches else self._handle_lists if self._merges else self._handle
        made: Callable[[Any], Any] = queue.task(TOPIC, **options)
        self.task = made(handle)
        for each in policies:
            each.made(self)

    @property
    def alive(self) -> list[int]:
        """The messages that are to be handled."""
        return [n for n in range(COUNT) if not any(each.drops(n) for each in self._policies)]

    @property
    def over(self) -> bool:
        awaited = [n for n in self.alive if not any(each.may_drop(n) for each in self._policies)]
        return all(self.journal.done[n] for n in awaited) and all(each.over(self) for each in self._policies)

    @property
    def calls(self) -> bool:
        return any(each.calls for each in self._policies)

    async def send(self, n: int, told: int, **options: Any) -> Sent:
        task = self.task.options(**{**self._options("sending", n), **options})
        arguments: Item = {"n": n, "user": user_of(n), "told": told}
        if self._merges:
            arguments = {name: [value] for name, value in arguments.items()}
        sent: Sent = await (task.send(arguments) if self.in_batches else task.send(**arguments))
        return sent

    async def _spend(self, call: Call, asked: Sequence[Any]) -> list[Spent]:
        answers: list[Spent] = await call()
        for each, answer in zip(asked[0], answers, strict=True):
            self.granted += [Grant(each.gate, each.holder, answer.now, at) for at in answer.at]
        return answers

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
        options = {"grace": 0, **self._options("worker")}
        async with Worker(self.queue, **options) as first, Worker(self.queue, **options) as second:
            self.workers = [first, second]
            async with asyncio.TaskGroup() as group:
                for each in self._policies:
                    group.create_task(each.work(self))
                group.create_task(once(lambda: self.over))
            await self._each("end")
            await self._ended()
        await self._each("look")
        self._check()

    async def _ended(self) -> None:
        """Nothing that was sent is left in the engine."""

        async def gone() -> bool:
            await self.queue.purge(TOPIC, state="dead")
            found = await self.queue.stats(TOPIC)
            return not (found.pending + found.leased)

        await once(gone)

    def _check(self) -> None:
        done = {n: times for n, times in self.journal.done.items() if n >= 0}
        assert not [n for n in done if n not in self.alive], "handled, and should not have been"
        for each in self._policies:
            each.check(self)
        if not any(each.repeats or (each.sweeps and self.in_batches) for each in self._policies):
            assert set(self.journal.done.values()) <= {1}, "handled twice"
            for n in set(self.alive) & set(done):
                attempts = [run.attempt for run in self.journal.of(n)]
                assert attempts[-1] == 1 + sum(each.again(n) for each in self._policies), attempts

    async def _each(self, part: str) -> None:
        for each in self._policies:
            await getattr(each, part)(self)

    def _options(self, part: str, *of: int) -> dict[str, Any]:
        return {name: value for each in self._policies for name, value in getattr(each, part)(*of).items()}

    async def _handle(self, n: int | None = None, user: int = 0, told: int = 0) -> int:
        return await self._run(_instant() if n is None else n, told, current())

    async def _handle_lists(self, n: list[int] | None = None, user: Sequence[int] = (), told: Sequence[int] = ()) -> int:
        each = set(n or ())
        return await self._run(each.pop() if each else _instant(), list(told), current())

    async def _handle_batch(self, items: list[Item]) -> list[Failed]:
        self.journal.sizes.append(len(items))
        each = zip(items, current_batch(), strict=True)
        runs = [self._run(item["n"], item["told"], delivery) for item, delivery in each]
        found = await asyncio.gather(*runs, return_exceptions=True)
        return [Failed(item, error) for item, error in zip(items, found, strict=True) if isinstance(error, BaseException)]

    async def _run(self, n: int, told: Any, delivery: AsyncDelivery) -> int:
        self.journal.begins(n, told, delivery)
        try:
            for each in self._policies:
                await each.handle(n)
            await asyncio.sleep(0.001)
        except asyncio.CancelledError:
            self.journal.cut[n] += 1
            raise
        finally:
            self.journal.ends(n)
        self.journal.done[n] += 1
        return answer(n)

    async def _probed(self, n: int) -> None:
        self._probes.append(n)


def user_of(n: int) -> int:
    return n % USERS if n >= 0 else 0


def _instant() -> int:
    planned = current().planned_at
    assert planned is not None
    ms: int = round(planned.timestamp() * 1000)
    return -ms


def answer(n: int) -> int:
    """What the handler returns."""
    return 10 * n


class Policy:
    exclusive: tuple[str, ...] = ()  # of policies that share a word here, a task can have one
    calls = False  # a message is due when others are done, and what it was moved to is the latest
    merges = False  # the arguments are lists
    sweeps = False  # what befalls one message of a batch befalls all of it
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

    def worker(self) -> dict[str, Any]:
        """Options of the workers."""
        return {}

    def made(self, stage: Stage) -> None:
        """When there is the task."""

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

    def again(self, n: int) -> int:
        """Further attempts that a message needs."""
        return 0

    def drops(self, n: int) -> bool:
        """Whether a message is not to be handled."""
        return False

    def may_drop(self, n: int) -> bool:
        """Whether nobody waits for it."""
        return False

    def over(self, stage: Stage) -> bool:
        """Whether what it waits for has happened."""
        return True

    async def end(self, stage: Stage) -> None:
        """When all is handled, and there are workers still."""

    async def look(self, stage: Stage) -> None:
        """When nothing is left, and there is no worker any more."""

    def check(self, stage: Stage) -> None:
        """When all is over."""
