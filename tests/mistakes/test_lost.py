"""Jobs that a hand-made queue loses, and bide does not: a killed worker, a killed mover, a listener that was away."""

from collections.abc import Callable
from pathlib import Path

from bide import Queue
from tests.mistakes.conftest import was_killed
from tests.worker.processes import until

WORKER = """
import os, signal, sys
from bide import Queue

with Queue(sys.argv[1]) as queue:
    [delivery] = queue.receive("order.cancel", lease="500ms")
    os.kill(os.getpid(), signal.SIGKILL)
"""
KILLED_AT_A_COMMAND = """
import os, signal, sys
from redis.connection import AbstractConnection
from bide import Queue

url, topic, last, log = sys.argv[1:]
left, send = int(last), AbstractConnection.send_packed_command

def counted(self, *args, **options):
    global left
    send(self, *args, **options)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

AbstractConnection.send_packed_command = counted
with Queue(url) as queue:
    for delivery in queue.receive(topic, lease="500ms"):
        with delivery:
            open(log, "a").write(topic)
"""


def test_a_job_that_is_taken_before_the_work_is_lost_with_its_worker(by_hand: Callable[[str], str]) -> None:
    assert by_hand("take_before_work") == "1 job sent, 0 done, 0 left"


def test_in_bide_it_comes_back(redis_url: str) -> None:
    with Queue(redis_url) as queue:
        queue.send("order.cancel", {"order": 42})
        assert was_killed(WORKER, redis_url)
        [delivery] = queue.receive("order.cancel", wait="60s")
        assert (delivery.body, delivery.attempt) == ({"order": 42}, 2)
        delivery.ack()


def test_a_job_that_is_popped_and_then_pushed_is_lost_between_the_two(by_hand: Callable[[str], str]) -> None:
    assert by_hand("pop_then_push") == "1 job sent, 0 delayed, 0 ready"


def test_in_bide_a_worker_may_be_killed_after_any_of_its_commands(redis_url: str, tmp_path: Path) -> None:
    kills, handled = 0, tmp_path / "handled"
    handled.touch()
    with Queue(redis_url) as queue:
        while True:
            topic = f"after.{kills + 1}.commands"
            queue.send(topic, "order 42")
            if not was_killed(KILLED_AT_A_COMMAND, redis_url, topic, kills + 1, handled):
                break
            kills += 1
            if topic not in handled.read_text():
                [delivery] = queue.receive(topic, wait="60s")
                assert delivery.body == "order 42"
                delivery.ack()
    assert kills >= 3, "its process sent fewer commands than to connect, to claim and to ack"
    assert f"after.{kills}.commands" in handled.read_text()


def test_an_expiry_event_is_lost_while_its_listener_is_away(by_hand: Callable[[str], str]) -> None:
    assert by_hand("expiry_events") == "1 key expired, events heard: []"


def test_in_bide_a_message_that_fell_due_while_its_worker_was_away_is_delivered_to_it(redis_url: str) -> None:
    with Queue(redis_url) as queue:
        queue.send("order.cancel", 42, delay="100ms")
        until(lambda: queue.stats("order.cancel").ready == 1)
    with Queue(redis_url) as queue:  # the worker, restarted
        [delivery] = queue.receive("order.cancel", wait="60s")
        assert delivery.body == 42
        delivery.ack()
