"""Work that a hand-made queue does twice, or for two at once, and bide does not."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from bide import LeaseLost, Queue
from tests.mistakes.conftest import was_killed

CHARGE = """
import os, signal, sqlite3, sys
from bide import Queue

url, path, moment = sys.argv[1:]
with Queue(url) as queue:
    [delivery] = queue.receive("charge", lease="500ms")
    account = sqlite3.connect(path)
    account.execute("update accounts set balance = balance - 10")
    delivery.ack(connection=account)
    if moment == "after the commit":
        account.commit()
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_lease_that_is_released_unchecked_lets_a_third_worker_in(by_hand: Callable[[str], str]) -> None:
    assert by_hand("remove_without_owner") == "A began: True, B began: True, C began while B was at work: True"


def test_in_bide_a_worker_whose_lease_has_ended_can_end_or_release_nothing(redis_url: str) -> None:
    with Queue(redis_url) as queue:
        queue.send("order.ship", 42)
        [first] = queue.receive("order.ship", lease="100ms")
        [second] = queue.receive("order.ship", wait="60s", lease="10m")  # as soon as the first lease has ended
        for end in (first.ack, first.release):
            with pytest.raises(LeaseLost):
                end()
        assert queue.receive("order.ship") == []
        second.ack()
        assert queue.stats("order.ship").leased == 0


def test_work_whose_worker_was_killed_before_it_said_so_is_done_twice(by_hand: Callable[[str], str]) -> None:
    assert by_hand("no_idempotence") == "1 charge of 10 sent, the balance went from 100 to 80"


@pytest.mark.parametrize("moment", ["before the commit", "after the commit"])
def test_in_bide_the_work_and_its_ack_are_one_commit(moment: str, tmp_path: Path) -> None:
    path = tmp_path / "shop.db"
    with Queue(f"sqlite:///{path}") as queue:
        queue.send("charge", 10)
        account = sqlite3.connect(path)
        account.executescript("create table accounts (balance integer); insert into accounts values (100)")
        # When a worker that charges the customer is killed
        assert was_killed(CHARGE, f"sqlite:///{path}", path, moment)
        # Then the message comes back only if the customer was not charged
        if moment == "before the commit":
            [delivery] = queue.receive("charge", wait="60s")
            account.execute("update accounts set balance = balance - 10")
            delivery.ack(connection=account)
            account.commit()
        stats = queue.stats("charge")
        assert (stats.pending, stats.leased) == (0, 0)
        assert account.execute("select balance from accounts").fetchall() == [(90,)]
        account.close()
