"""A primary that dies under load, and its standby that takes over: what was accepted by whom, and what was lost."""

import os
import time
from pathlib import Path

import pytest

from tests.redis.failing_over import Crowd, Outcome, judge
from tests.servers.fixtures import NewPostgres, NewStandby

LONG = os.environ.get("BIDE_LONG")
ROUNDS = 10 if LONG else 1
SYNC = "select pg_logical_emit_message(true, 'bide', '')"  # a commit that is synced, and with it all claims before it
BEHIND = 0.5  # seconds for which a standby receives nothing before the primary dies
pytestmark = pytest.mark.timeout(3_600 if LONG else 180)


def fail_over(
    new_postgres: NewPostgres, new_standby: NewStandby, folder: Path, *, synchronous: bool, behind: float = 0.0
) -> Outcome:
    primary = new_postgres()
    standby = new_standby(primary)
    if synchronous:
        standby.make_synchronous()
    url = f"postgres://postgres@127.0.0.1:{standby.port},127.0.0.1:{primary.port}/postgres?timeout=2"
    crowd = Crowd(url, folder)
    with crowd.at_work(), crowd.fault("kill") as dealt:
        primary.ask(SYNC)
        standby.wait_until_caught_up()  # what is done from here on may be lost, and nothing else
        if behind:
            standby.leave()
            time.sleep(behind)
        primary.kill()
        standby.promote()
        dealt.now()
    return judge(crowd)


@pytest.mark.always
def test_a_failover_to_a_synchronous_standby_loses_claims_and_nothing_else(
    new_postgres: NewPostgres, new_standby: NewStandby, tmp_path: Path
) -> None:
    """A claim does not wait for the standby: its message may be handed out again at once, and the first ack is refused."""
    for number in range(ROUNDS):
        (folder := tmp_path / str(number)).mkdir()
        outcome = fail_over(new_postgres, new_standby, folder, synchronous=True, behind=BEHIND)
        assert outcome.lost == 0
        assert outcome.report.counts["undone"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("behind", [0.0, BEHIND], ids=["close behind", "half a second behind"])
def test_a_failover_to_an_asynchronous_standby_loses_what_it_had_not_received_and_confuses_nobody(
    new_postgres: NewPostgres, new_standby: NewStandby, tmp_path: Path, behind: float
) -> None:
    """No end of a delivery that was made before is accepted for one that was made after."""
    lost, undone, accepted = [], [], []
    for number in range(ROUNDS):
        (folder := tmp_path / str(number)).mkdir()
        outcome = fail_over(new_postgres, new_standby, folder, synchronous=False, behind=behind)
        lost.append(outcome.lost)
        undone.append(outcome.report.counts["undone"])
        accepted.append(outcome.report.counts["accepted"])
    print(f"{behind} s behind: lost {lost}, ends undone {undone}, of {accepted} accepted")
