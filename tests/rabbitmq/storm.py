"""Senders and real worker processes that use a broker under faults, and write down what they do.

    with Storm(server.url, folder) as storm:
        with storm.at_work():
            with storm.fault("kill") as dealt:
                ...
        storm.settle()
    print(storm.account())

Nobody begins anew: the workers' processes and the senders' queues are the same ones from the first fault to the last.
"""

import asyncio
import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

from bide import AsyncQueue, Queue
from bide.errors import EngineError
from bide.prove import AsyncRecorded, History, Recorded
from bide.types import Outgoing, Sent
from tests.rabbitmq.account import Account, account
from tests.worker.processes import Running, Shop, until

TOPICS = ("mail", "orders", "orders.eu")
PACE = 0.05  # seconds between two sends of one sender
LONGEST = 5_000  # ms, of the delays
LEASE = 10  # seconds
PATIENCE = 120.0  # seconds until all are at work again, on a machine that is busy
WELCOME = frozenset({"Unavailable", "OutcomeUnknown", "QueueFull"})
HANDLERS = """
import random
from bide.prove import History, record_engine

process = f"worker-{{os.getpid()}}"
history = History(os.path.join({folder!r}, f"{{process}}.jsonl"), process)
record_engine(queue, history)


async def work():
    with history.handling(current()) as op:
        await asyncio.sleep(random.choice([0, 0, 0.01, 0.05]))
        chance = random.random()
        if chance < 0.03:
            raise ValueError("it was asked to fail")
        if chance < 0.06:
            raise Snooze("200ms")
        op.ok()


@queue.task("mail", backoff=SOON)
async def mail(tag: str, body: object) -> None:
    await work()


@queue.task("orders", backoff=steps("300ms"))
async def orders(tag: str, body: object) -> None:
    await work()


@queue.task("orders.eu", backoff=SOON)
async def orders_eu(tag: str, body: object) -> None:
    await work()
"""


class Dealt:
    """When a fault was over for the broker: it runs again, or can be reached again."""

    at = 0

    def now(self) -> None:
        self.at = time.monotonic_ns()


class Sends:
    """What two senders, one of each colour, have sent and know to be accepted."""

    def __init__(self, url: str, folder: Path, seed: int, longest: int) -> None:
        self.ids: set[str] = set()
        self.over = threading.Event()
        self.errors: list[BaseException] = []
        self._url = url
        self._folder = folder
        self._seed = seed
        self._longest = longest
        self._threads = [threading.Thread(target=self._run, args=(each,)) for each in (self._sync, self._async)]

    def start(self) -> None:
        for each in self._threads:
            each.start()

    def stop(self) -> None:
        self.over.set()
        for each in self._threads:
            each.join(PATIENCE)
            assert not each.is_alive(), "a sender hangs"

    def _run(self, send: Callable[[], None]) -> None:
        try:
            send()
        except BaseException as error:
            self.errors.append(error)

    def _sync(self) -> None:
        chance = random.Random(f"{self._seed} sync")
        with Queue(self._url) as plain, History(self._folder / "sender.jsonl", "sender") as history:
            queue = Recorded(plain, history)
            while not self.over.wait(PACE):
                with contextlib.suppress(EngineError):
                    if chance.random() < 0.05:
                        many = [Outgoing(n, max_attempts=50) for n in range(10)]
                        self._accepted(queue.send_many(chance.choice(TOPICS), many))
                    else:
                        self._accepted([queue.send(chance.choice(TOPICS), 1, delay=self._delay(chance), max_attempts=50)])

    def _async(self) -> None:
        asyncio.run(self._gather())

    async def _gather(self) -> None:
        """Four at once."""
        chance = random.Random(f"{self._seed} async")
        with History(self._folder / "async-sender.jsonl", "async-sender") as history:
            async with AsyncQueue(self._url) as plain:
                queue = AsyncRecorded(plain, history)

                async def send() -> None:
                    with contextlib.suppress(EngineError):
                        sent = await queue.send(chance.choice(TOPICS), 1, delay=self._delay(chance), max_attempts=50)
                        self._accepted([sent])

                while not self.over.is_set():
                    await asyncio.gather(*(send() for _ in range(4)))
                    await asyncio.sleep(4 * PACE)

    def _delay(self, chance: random.Random) -> float:
        return chance.randrange(self._longest) / 1000 if chance.random() < 0.9 else 0

    def _accepted(self, sent: Sequence[Sent]) -> None:
        self.ids.update(each.id for each in sent)


class Storm:
    """For `with`. `seed` decides what is sent; what is handled how is left to chance."""

    def __init__(self, url: str, folder: Path, *, workers: int = 2, seed: int = 1, longest: int = LONGEST) -> None:
        self.folder = folder
        self.url = url
        self.shop = Shop(folder, url)
        self.sends = Sends(url, folder, seed, longest)
        self.workers: list[Running] = []
        self._count = workers
        self._history = History(folder / "director.jsonl", "director")
        self._read: dict[Path, int] = {}  # bytes of the workers' histories
        self._asked: dict[int, str] = {}  # the ids of acks that were begun, by their calls
        self._acked: set[str] = set()

    def __enter__(self) -> Self:
        self.shop.write(HANDLERS.format(folder=str(self.folder)))
        return self

    def __exit__(self, *_: object) -> None:
        self.sends.stop()
        self.shop.close()
        self._history.close()

    def start_worker(self) -> Running:
        return self.shop.ready("--lease", f"{LEASE}s", "--concurrency", "10")

    @contextlib.contextmanager
    def at_work(self) -> Iterator[None]:
        """Workers and senders are, until the block is left; then nobody sends any more."""
        with Queue(self.url) as queue:
            for topic in TOPICS:
                queue.receive(topic)  # makes the ladder and the topic's queue
        self.workers = [self.start_worker() for _ in range(self._count)]
        self.sends.start()
        try:
            self.wait_for_work()
            yield
        finally:
            self.sends.stop()
        if self.sends.errors:
            raise self.sends.errors[0]

    @contextlib.contextmanager
    def fault(self, kind: str, *, work: int = 40, patience: float = PATIENCE) -> Iterator[Dealt]:
        """Do the fault in the block, and say when it is over for the broker. Afterwards so many more messages are handled."""
        with self._history.fault(kind) as fault:
            dealt = Dealt()
            yield dealt
            fault.landed(str(dealt.at or time.monotonic_ns()))
        self.wait_for_work(work, patience)

    def wait_for_work(self, many: int = 40, patience: float = PATIENCE) -> None:
        before = len(self.acked())
        until(
            lambda: len(self.acked()) >= before + many or self.sends.errors,
            lambda: f"{many} more acks; {[each.err[-2_000:] for each in self.workers]}",
            patience,
        )

    def pause(self, seconds: float) -> None:
        """How long a fault lasts."""
        self.sends.over.wait(seconds)

    def replace_worker(self, place: int, number: int) -> None:
        """End a worker by this signal, and start its successor."""
        ended = self.workers[place]
        ended.send(number)
        ended.wait(PATIENCE)
        self.workers[place] = self.start_worker()

    def acked(self) -> set[str]:
        """The ids of what the workers have ended for good, or may have."""
        for path in self.folder.glob("worker-*.jsonl"):
            begin = self._read.get(path, 0)
            with path.open("rb") as file:
                file.seek(begin)
                whole, newline, _ = file.read().rpartition(b"\n")
            self._read[path] = begin + len(whole) + len(newline)
            for line in whole.splitlines():
                if b'"op":"ack"' in line:
                    record = json.loads(line)
                    if record["result"] == "invoke":
                        self._asked[record["call"]] = record["id"]
                    elif record["result"] in ("ok", "unknown"):
                        self._acked.add(self._asked[record["call"]])
        return self._acked

    def settle(self, patience: float = PATIENCE) -> float:
        """Wait until all that is known to be accepted has been handled, or the time is up; how long that took."""
        began = time.monotonic()
        with contextlib.suppress(AssertionError):  # the account tells which are lost
            until(lambda: not self.sends.ids - self.acked(), patience=patience)
        return time.monotonic() - began

    def end(self) -> None:
        """Let the workers end by themselves."""
        for each in self.workers:
            each.stop()

    def account(self) -> Account:
        self._history.close()
        return account(sorted(self.folder.glob("*.jsonl")))
