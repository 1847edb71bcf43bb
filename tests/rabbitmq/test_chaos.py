"""Workers and their broker are killed, frozen and restarted at random, and what all of them wrote down is judged."""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.rabbitmq.storm import LEASE, WELCOME, Storm
from tests.servers.rabbitmq import RabbitServer
from tests.servers.rabbitmq_fixtures import NewRabbit

LONG = os.environ.get("BIDE_LONG")
MINUTES = 10.0 if LONG else 0.5
HEARTBEATS = 26.0  # seconds of silence after which the broker and its clients take each other for lost
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1_800)]


class Chaos:
    """One fault after the other."""

    def __init__(self, server: RabbitServer, storm: Storm, seed: int) -> None:
        self._server = server
        self._storm = storm
        self._chance = random.Random(seed)
        self.dealt: Counter[str] = Counter()
        self._faults = {
            "kill the broker": self._kill_the_broker,
            "restart the broker": self._restart_the_broker,
            "freeze the broker": self._freeze_the_broker,
            "cut all connections": self._cut_all_connections,
            "kill a worker": self._kill_a_worker,
            "kill all workers": self._kill_all_workers,
            "stop a worker": self._stop_a_worker,
            "ask a worker to end": self._ask_a_worker_to_end,
        }

    def go_on(self, minutes: float) -> None:
        """Each fault once, and then by chance until the time is up."""
        until = time.monotonic() + 60 * minutes
        first = self._chance.sample(list(self._faults), len(self._faults))
        while first or time.monotonic() < until:
            kind = first.pop() if first else self._chance.choice(list(self._faults))
            self._storm.wait_for_work(self._chance.randrange(10, 60))
            with self._storm.fault(kind) as dealt:
                self._faults[kind]()
                dealt.now()
            self.dealt[kind] += 1

    def _kill_the_broker(self) -> None:
        self._server.kill()
        self._server.start()

    def _restart_the_broker(self) -> None:
        self._server.stop()
        self._server.start()

    def _freeze_the_broker(self) -> None:
        self._server.freeze()
        self._storm.pause(self._chance.choice((1.0, HEARTBEATS)))
        self._server.thaw()

    def _cut_all_connections(self) -> None:
        self._server.ctl("close_all_connections", "chaos")

    def _kill_a_worker(self) -> None:
        self._storm.replace_worker(self._place(), signal.SIGKILL)

    def _kill_all_workers(self) -> None:
        for worker in self._storm.workers:
            worker.send(signal.SIGKILL)
        for place in range(len(self._storm.workers)):
            self._storm.replace_worker(place, signal.SIGKILL)

    def _stop_a_worker(self) -> None:
        worker = self._storm.workers[self._place()]
        worker.send(signal.SIGSTOP)
        self._storm.pause(self._chance.choice((1.0, LEASE + 2.0, HEARTBEATS)))
        worker.send(signal.SIGCONT)

    def _ask_a_worker_to_end(self) -> None:
        self._storm.replace_worker(self._place(), signal.SIGTERM)

    def _place(self) -> int:
        return self._chance.randrange(len(self._storm.workers))


def test_workers_and_a_broker_that_are_killed_lose_nothing(new_rabbitmq: NewRabbit, tmp_path: Path) -> None:
    server, seed = new_rabbitmq(tuned=True), random.randrange(10**6)
    print(f"seed {seed}")
    with Storm(server.url, tmp_path, workers=3, seed=seed) as storm:
        chaos = Chaos(server, storm, seed)
        with storm.at_work():
            server.save_declared()
            chaos.go_on(MINUTES)
        storm.settle()
        storm.end()
        found = storm.account()
    print(found, *chaos.dealt.items(), sep="\n")
    assert found.good, str(found)
    assert {error for error, _ in found.raised} <= WELCOME | {"LeaseLost"}, str(found)
    assert all(chaos.dealt.values())
