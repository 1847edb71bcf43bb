"""Locks, limits, results, dependencies, schedules, batches, merged sends: at once, while workers are killed and stand still."""

import os
import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide import LeaseLost, NoResult, Sent
from bide.prove import History, Recorded, Report, check
from bide.queue.schedules.records import key_of
from tests.worker.processes import Running, Shop, open_shop, until

MESSAGES, KILLS, WORKERS = (3_000, 30, 4) if "BIDE_LONG" in os.environ else (150, 3, 3)
LEASE = 1.5  # seconds
HANDLERS = """
import random
from contextlib import ExitStack
from bide import current_batch
from bide.prove import History, record_engine

history = History(os.path.join({folder!r}, f"worker-{{os.getpid()}}.jsonl"), f"worker-{{os.getpid()}}")
record_engine(queue, history)
ROOM = {room}


async def work(gates):
    with history.handling(current(), gates=gates) as op:
        await asyncio.sleep(random.choice([0, 0.005, 0.02]))
        chance = random.random()
        if chance < 0.03:
            raise ValueError("it was asked to fail")
        if chance < 0.06:
            raise Snooze("10ms")
        answer = random.randrange(10**9)
        op.ok(answer)
        return answer


@queue.task("locked", lock="order:{{body}}", keep="1h", backoff=SOON)
async def locked(tag: str, body: int) -> int:
    return await work({{f"order:{{body}}": 1}})


@queue.task("few", concurrency=2, backoff=SOON)
async def few(tag: str, body: int) -> None:
    await work({{"few": ROOM}})


@queue.task("each", concurrency=1, per="{{body}}", keep="1h", backoff=SOON)
async def each(tag: str, body: int) -> int:
    return await work({{f"each {{body}}": 1}})


@queue.task("whole", backoff=SOON)
async def whole(tag: str, body: int) -> None:
    await work(None)


@queue.task("batch", batch=10, linger="10ms", backoff=SOON)
async def batch(items: list[dict[str, object]]) -> None:
    with ExitStack() as every:
        ops = [every.enter_context(history.handling(delivery)) for delivery in current_batch()]
        await asyncio.sleep(random.choice([0, 0.02]))
        if random.random() < 0.03:
            raise ValueError("it was asked to fail")
        for op in ops:
            op.ok()


@queue.every("200ms", topic="tick", missed="all", backoff=SOON)
async def tick() -> None:
    await work(None)
"""


@pytest.fixture(
    params=["sqlite", *(pytest.param(name, marks=[pytest.mark.server, pytest.mark.slow]) for name in ("redis", "postgres"))]
)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    url = "" if request.param == "sqlite" else request.getfixturevalue(f"{request.param}_url")
    with open_shop(tmp_path, url) as made:
        yield made


class Sender:
    """Sends in all ways, and gets what is merged."""

    def __init__(self, shop: Shop, chance: random.Random) -> None:
        @shop.queue.task("locked", keep="1h")
        def locked(tag: str, body: int) -> int: ...  # type: ignore[empty-body]

        @shop.queue.task("each", keep="1h")
        def each(tag: str, body: int) -> int: ...  # type: ignore[empty-body]

        self.history = History(shop.folder / "sender.jsonl", "sender")
        self.queue = Recorded(shop.queue, self.history)
        self.chance = chance
        self.parts: list[Sent] = []

    def send(self, n: int) -> None:
        order, delay = self.chance.randrange(5), self.chance.randrange(30) / 1000
        self.parts.append(self.queue.send(self.chance.choice(("locked", "each")), order, delay=delay, max_attempts=50))
        self.queue.send("few", order, max_attempts=50, expires_in=self.chance.choice(("20ms", "1h", None)))
        self.queue.send("batch", n, max_attempts=50)
        self.queue.send("merged", n, delay=0.1, key=f"post:{order}", if_exists="merge", max_attempts=50)
        if n % 3 == 0:
            waits_for = self.chance.sample(self.parts[-20:], min(3, len(self.parts)))
            with self.history.sending("whole", order, depends_on=waits_for, deadline="1h", max_attempts=50) as op:
                op.ok(self.queue.plain.send("whole", op.body, depends_on=waits_for, deadline="1h", max_attempts=50))
        if n % 5 == 0:
            self.queue.send("locked", order, key=f"once:{n % 25}", unique_for="1h", max_attempts=50)
        self.receive()

    def receive(self) -> None:
        for each in self.queue.receive("merged", limit=5, lease=0.2):
            try:
                if self.chance.random() < 0.8:
                    each.ack()
                elif self.chance.random() < 0.5:
                    each.retry(0.01)  # and otherwise its lease ends
            except LeaseLost:
                continue

    def left(self) -> int:
        self.receive()
        plain = self.queue.plain
        topics = ("locked", "few", "each", "whole", "batch", "merged", "tick")
        return sum(each.pending + each.leased for each in map(plain.stats, topics))

    def read(self) -> None:
        for sent in self.parts:
            with self.history.reading(sent.id) as op:
                try:
                    op.ok(self.queue.plain.result(sent, timeout=0))
                except NoResult:
                    op.end("fail")


def rage(shop: Shop, *, room: int = 2, kills: int = KILLS, messages: int = MESSAGES) -> Report:
    """Send, kill, wait until all is done, and judge. `room`: that the handlers of "few" say there is."""
    shop.write(HANDLERS.format(folder=str(shop.folder), room=room))
    chance = random.Random(seed := random.randrange(10**6))
    print(f"seed {seed}")
    sender = Sender(shop, chance)

    def start() -> Running:
        return shop.ready("--lease", f"{LEASE}s", "--concurrency", "8")

    workers = [start() for _ in range(WORKERS)]
    waking: list[threading.Timer] = []
    for n in range(messages):
        sender.send(n)
        if kills and n % (messages // kills) == messages // kills - 1:
            victim = workers.pop(0)
            if n % 2:
                os.kill(victim.pid, signal.SIGSTOP)
                # In a thread: it may have the lock that the sender waits for.
                waking.append(threading.Timer(1.5 * LEASE, victim.send, [signal.SIGCONT]))
                waking[-1].start()
                workers.append(victim)
            else:
                victim.send(signal.SIGCONT)
                victim.send(signal.SIGKILL)
                victim.wait()
                workers.append(start())
    for each in waking:
        each.join()
    with sender.history.cancelling(topic="tick", key=key_of("tick")):  # what is planned and was not begun
        shop.queue.pause_schedule("tick")
    until(lambda: not sender.left(), lambda: f"{shop.counts()}")
    for worker in workers:
        worker.stop()
    sender.read()
    sender.queue.look()
    sender.history.close()
    return check(sorted(shop.folder.glob("*.jsonl")))


@pytest.mark.timeout(1_200 if "BIDE_LONG" in os.environ else 180)
def test_what_tasks_promise_holds_while_workers_are_killed_and_stand_still(shop: Shop) -> None:
    report = rage(shop)
    assert report.valid is True, str(report)
    assert report.counts["handled"] > 3 * MESSAGES


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_a_limit_that_is_wider_than_the_handlers_say_is_found(shop: Shop) -> None:
    report = rage(shop, room=1, kills=0)
    assert set(report.violations) == {"limits"}, str(report)
