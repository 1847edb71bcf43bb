"""Jobs that a hand-made queue runs too early or too late, and bide at their time; and a loop that never rests."""

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Callable

import redis

from bide import AsyncQueue, Call, Hook, Queue, Worker
from tests.mistakes.conftest import PATIENCE, ran
from tests.servers.redis import RedisServer

WRONG_CLOCK = """
import sys, time

real, real_ns, off = time.time, time.time_ns, 20 * 60
time.time = lambda: real() + off
time.time_ns = lambda: real_ns() + off * 10**9
from bide import Queue

with Queue(sys.argv[1]) as queue:
    print([each.body for each in queue.receive("remind", limit=10, wait=0)])
    queue.send("remind", "sent by the fast one")
"""


class Asleep(Hook):
    """Tells when the queue begins to wait for messages."""

    def __init__(self) -> None:
        self.now = threading.Event()

    def before(self, call: Call) -> None:
        if call.verb == "wait":
            self.now.set()


def test_by_the_clocks_of_machines_a_job_runs_early_or_late(by_hand: Callable[[str], str]) -> None:
    assert by_hand("client_clocks").splitlines() == [
        "the fast worker runs now: ['in 15 minutes']",
        "the right worker runs now: []",
    ]


def test_who_looks_ahead_in_the_wrong_unit_runs_jobs_early(by_hand: Callable[[str], str]) -> None:
    assert by_hand("looks_ahead") == "run now: ['cancel in 1 minutes', 'cancel in 15 minutes']"


def test_in_bide_nobody_can_look_ahead(redis_url: str) -> None:
    with Queue(redis_url) as queue:
        for minutes in (1, 15, 30):
            queue.send("cancel", minutes, delay=60 * minutes)
        assert queue.receive("cancel", limit=10, wait=0) == []
        assert queue.stats("cancel").scheduled == 3


def test_in_bide_the_clock_of_the_server_counts(redis_url: str) -> None:
    with Queue(redis_url) as queue:
        queue.send("remind", "in 15 minutes", delay="15m")
        command = [sys.executable, "-c", WRONG_CLOCK, redis_url]
        fast = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE)
        assert fast.stdout == "[]\n"
        [delivery] = queue.receive("remind", limit=10, wait="60s")
        assert delivery.body == "sent by the fast one"
        delivery.ack()


def test_a_loop_that_takes_usleep_for_seconds_never_rests(by_hand: Callable[[str], str]) -> None:
    found = re.fullmatch(r"2 seconds with nothing to do, (\d+) looks", by_hand("usleep_for_seconds"))
    assert found
    assert int(found[1]) > 50  # it means to look twice


def test_in_bide_a_receiver_waits_on_the_server(redis_url: str, redis_server: RedisServer) -> None:
    def commands(client: redis.Redis) -> int:
        return int(client.info("stats")["total_commands_processed"])

    with Queue(redis_url) as queue, redis_server.client() as client:
        queue.receive("order.cancel")  # it has connected, and loaded its scripts
        before = commands(client)
        assert queue.receive("order.cancel", wait="2s") == []
        assert commands(client) - before < 50, "with those inside its scripts"


def test_in_one_queue_of_rabbitmq_a_short_ttl_waits_behind_a_long_one(rabbitmq_shared_url: str) -> None:
    assert ran("ttl_behind_ttl", RABBITMQ_URL=rabbitmq_shared_url) == "arrived: 3000 ms and then 100 ms"


async def test_in_bide_on_rabbitmq_a_short_delay_does_not_wait_behind_a_long_one(rabbitmq_shared_url: str) -> None:
    async with AsyncQueue(rabbitmq_shared_url) as queue:
        await queue.send("mail", "an hour", delay="1h")
        await queue.send("mail", "100 ms", delay="100ms")
        [delivery] = await queue.receive("mail", limit=2, wait="60s")
        assert delivery.body == "100 ms"
        await delivery.ack()


def test_a_worker_that_sleeps_until_its_next_job_misses_one_that_is_due_sooner(by_hand: Callable[[str], str]) -> None:
    assert by_hand("sleeps_through") == "due when the worker looks again: ['in 0.1 s', 'in 3 s']"


def test_in_bide_a_send_wakes_a_receiver_that_sleeps(redis_url: str) -> None:
    asleep = Asleep()
    found: list[object] = []
    with Queue(redis_url) as queue, Queue(redis_url, hooks=[asleep]) as receiver:
        queue.send("remind", "in an hour", delay="1h")

        def receive() -> None:
            found.extend(each.body for each in receiver.receive("remind", limit=2, wait="60s"))

        thread = threading.Thread(target=receive)
        thread.start()
        assert asleep.now.wait(PATIENCE)
        queue.send("remind", "in 100 ms", delay="100ms")
        thread.join(PATIENCE)
    assert found == ["in 100 ms"]


def test_jobs_that_wait_for_a_lock_in_their_threads_keep_others_out(by_hand: Callable[[str], str]) -> None:
    assert by_hand("waits_in_worker") == "order 2 ran while order 1 was at work: False"


async def test_in_bide_a_message_that_waits_for_a_lock_holds_no_slot(redis_url: str) -> None:
    order_2_ran, done = asyncio.Event(), asyncio.Event()
    ended: list[int] = []
    queue = AsyncQueue(redis_url)

    @queue.task("ship", lock="order:{order}", timeout="1h")
    async def ship(order: int) -> None:
        if order == 2:
            order_2_ran.set()
        await order_2_ran.wait()  # order 1 is at work until then
        ended.append(order)
        if len(ended) == 4:
            done.set()

    async with queue:
        for order in (1, 1, 1, 2):
            await ship.send(order)
        async with Worker(queue, concurrency=2):
            await asyncio.wait_for(done.wait(), PATIENCE)
    assert sorted(ended) == [1, 1, 1, 2]
