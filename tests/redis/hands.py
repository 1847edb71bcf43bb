"""Sync and async queues by the same code; names that belong to a part; and which messages were accepted and handed out."""

import asyncio
import contextlib
import inspect
import itertools
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Self

from bide import AsyncQueue, Queue
from bide.engines.redis.namespace import by_name
from bide.engines.redis.protocol.encoding import name_of
from bide.engines.redis.topology import Generation
from bide.queue.schedules import records
from bide.queue.tasks.limits import lock_gate
from bide.types import Sent
from tests.redis.book import Book

PACE = 0.3  # seconds between two of a kind
PARTS = range(3)
Act = Callable[[], Any]


class Names:
    """Keys and locks by the part that they belong to."""

    def __init__(self, within: Generation) -> None:
        self._within = within
        self._number = itertools.count()

    def key(self, topic: str, part: int) -> str:
        """A new one."""
        return next(key for key in map("k{}".format, self._number) if by_name(topic, key, self._within) == part)

    def value(self, part: int, gate_of: Callable[[str], str] = lock_gate) -> str:
        """A new one, whose gate is there: the name of a lock, or what a limit counts for."""
        return next(each for each in map("v{}".format, self._number) if by_name("", gate_of(each), self._within) == part)

    def schedule(self, part: int) -> str:
        """A new one, which is its task's topic as well: its next instant and all that is said of it are there."""
        names = map("every{}".format, self._number)
        return next(each for each in names if {by_name(*of, self._within) for of in _of_schedule(each)} == {part})


def _of_schedule(name: str) -> list[tuple[str, str]]:
    return [(name, records.key_of(name)), *((ref.topic or "", ref.key or "") for ref in records.refs(name))]


class Ledger:
    """Which messages were accepted, and when each was handed out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._accepted: dict[str, str] = {}  # the topic of each message that is to be handed out, by its id
        self._times: Counter[str] = Counter()  # that each was handed out
        self._needs: dict[str, set[int]] = {}  # parts, by id
        self._ids: dict[str, set[str]] = defaultdict(set)  # by their body
        self.early: list[str] = []

    def accepted(self, sent: Sent) -> None:
        with self._lock:
            self._accepted[sent.id] = sent.topic

    def handed_out(self, id: str, due: int, body: object = None, gates: Collection[int] = ()) -> None:
        """`due`: as it was handed out. All servers go by the clock of this machine. `body`: a text, if it was sent once.

        `gates`: the parts of its gates, without which it may have to come again.
        """
        with self._lock:
            self._times[id] += 1
            self._needs[id] = {name_of(id).shard, *gates}
            if isinstance(body, str):
                self._ids[body].add(id)
            if time.time() * 1000 < due - 1:
                self.early.append(id)

    def left(self, but: Collection[int] = ()) -> dict[str, int]:
        """What was accepted and never handed out, by topic, but for messages of these parts."""
        with self._lock:
            ids = [id for id in self._accepted if not self._times[id] and name_of(id).shard not in but]
            return Counter(self._accepted[id] for id in ids)

    def doubled(self) -> dict[str, int]:
        """Of what was sent once there are several messages."""
        with self._lock:
            return {body: len(ids) for body, ids in self._ids.items() if len(ids) > 1}

    def again(self, but: Collection[int]) -> dict[str, int]:
        """What was handed out more than once, by topic, but for what needs these parts."""
        with self._lock:
            ids = [id for id, times in self._times.items() if times > 1 and not self._needs[id] & {*but}]
            return Counter(self._accepted.get(id, "") for id in ids)


class Hand:
    """The same code uses a sync or an async queue by it."""

    colour: str

    def __init__(self, url: str, book: Book, made: "list[Hand] | None" = None) -> None:
        """`made`: all queues of one loop, or of the same threads."""
        self.queue: Any = self._make(url)
        self._url, self._book = url, book
        self._made = [] if made is None else made
        self._made.append(self)

    def other(self) -> Self:
        """Another queue of the same place."""
        return type(self)(self._url, self._book, self._made)

    async def __call__(self, act: Act) -> Any:
        found = act()
        return await found if inspect.isawaitable(found) else found

    async def pause(self, seconds: float = PACE) -> None:
        raise NotImplementedError

    def beside(self, part: int, what: Coroutine[Any, Any, None]) -> None:
        """Let it go on by itself; what concerns another part, or all (-1), does not hold it up."""
        raise NotImplementedError

    async def enter(self, block: Any) -> Any:
        return await self(lambda: block.__aenter__() if hasattr(block, "__aenter__") else block.__enter__())

    async def leave(self, block: Any) -> None:
        name = "__aexit__" if hasattr(block, "__aexit__") else "__exit__"
        await self(lambda: getattr(block, name)(None, None, None))

    async def close_all(self) -> None:
        for each in self._made:
            await each(each.queue.close)
            each.let_go()

    def let_go(self) -> None:
        """Of what it has beside its queue."""

    def _make(self, url: str) -> Any:
        raise NotImplementedError


class AsyncHand(Hand):
    colour = "async"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._tasks = set[asyncio.Task[None]]()

    async def pause(self, seconds: float = PACE) -> None:
        await asyncio.sleep(seconds)

    def beside(self, part: int, what: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(guarded(what, self._book))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _make(self, url: str) -> AsyncQueue:
        return AsyncQueue(url)


class SyncHand(Hand):
    colour = "sync"

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._pools = [ThreadPoolExecutor(2) for _ in (*PARTS, "all")]

    async def pause(self, seconds: float = PACE) -> None:
        time.sleep(seconds)  # noqa: ASYNC251  # there is no event loop

    def beside(self, part: int, what: Coroutine[Any, Any, None]) -> None:
        self._pools[part].submit(drive, guarded(what, self._book))

    def let_go(self) -> None:
        for pool in self._pools:
            pool.shutdown()

    def _make(self, url: str) -> Queue:
        return Queue(url)


async def guarded(what: Awaitable[None], book: Book) -> None:
    try:
        await what
    except asyncio.CancelledError:
        raise
    except BaseException as error:
        book.breaks(error)
        raise


def drive(what: Coroutine[Any, Any, None]) -> None:
    """Run what never waits for an event loop."""
    with contextlib.suppress(StopIteration):
        what.send(None)
        raise AssertionError("it waits")


class Here(NamedTuple):
    """What all who use one queue share."""

    hand: Hand
    names: Names
    book: Book
    ledger: Ledger
    quiet: threading.Event  # nobody sends any more
    over: threading.Event  # nobody receives any more

    def named(self, what: str) -> str:
        return f"{self.hand.colour} {what}"

    async def do(self, what: str, parts: Collection[int], act: Act) -> Any:
        """None if it failed."""
        with self.book.call(self.named(what), parts):
            return await self.hand(act)

    def other(self) -> "Here":
        """Another queue of the same place."""
        return self._replace(hand=self.hand.other())
