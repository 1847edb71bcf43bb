"""A broker is killed under load and starts again on its data: what it has confirmed comes out, and the clients go on.

A process that is killed leaves the system what it has written, so this shows nothing of a machine that loses its power.
"""

import os
import random
from pathlib import Path

import pytest

from tests.rabbitmq.account import Account
from tests.rabbitmq.storm import WELCOME, Storm
from tests.servers.rabbitmq import RabbitServer
from tests.servers.rabbitmq_fixtures import NewRabbit

LONG = os.environ.get("BIDE_LONG")
KILLS = 20 if LONG else 2
pytestmark = pytest.mark.timeout(3_600 if LONG else 180)


def killed_often(server: RabbitServer, folder: Path, kills: int, *, patience: float = 120.0) -> Account:
    chance = random.Random(kills)
    with Storm(server.url, folder) as storm:
        with storm.at_work():
            server.save_declared()
            for _ in range(kills):
                storm.wait_for_work(chance.randrange(20, 80))
                with storm.fault("kill", patience=patience) as dealt:
                    server.kill()
                    server.start()
                    dealt.now()
        storm.settle(patience)
        storm.end()
        found = storm.account()
    print(found)
    return found


def test_what_a_broker_has_confirmed_comes_out_after_kills(new_rabbitmq: NewRabbit, tmp_path: Path) -> None:
    found = killed_often(new_rabbitmq(tuned=True), tmp_path, KILLS)
    assert found.good, str(found)
    assert {error for error, _ in found.raised} <= WELCOME | {"LeaseLost"}, str(found)
    assert len(found.waits) == KILLS


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_without_its_tuning_a_broker_takes_minutes_but_loses_nothing(new_rabbitmq: NewRabbit, tmp_path: Path) -> None:
    found = killed_often(new_rabbitmq(), tmp_path, 2, patience=600.0)
    assert found.good, str(found)
