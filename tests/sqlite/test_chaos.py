"""Real processes are killed and stopped at random over one file, and what they have written down is judged."""

import os
import random
import signal
from pathlib import Path

import pytest

from tests.sqlite import chaos

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs POSIX signals")
long = pytest.mark.skipif("BIDE_LONG" not in os.environ, reason="minutes of chaos: BIDE_LONG=1 runs them")


def test_a_few_seconds_of_kills_and_stops_break_no_promise(tmp_path: Path) -> None:
    outcome = chaos.run(tmp_path, kills=12, stops=5, messages=3_000, seconds=5, seed=1)
    assert outcome.good, str(outcome)
    assert outcome.kills >= 10
    assert outcome.stops >= 3
    assert outcome.report.counts["accepted"] >= 3_000
    assert outcome.report.counts["delivered"] > 1_000
    assert outcome.refused_after_stops > 0, str(outcome)
    assert "unexplained" not in outcome.report.duplicates
    assert all(landed for _, landed in outcome.report.faults.values())


@pytest.mark.slow
@long
@pytest.mark.timeout(1_800)
def test_two_hundred_kills_lose_nothing(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"python tests/sqlite/chaos.py --kills 200 --stops 20 --messages 100000 --seconds 150 --seed {seed}")
    outcome = chaos.run(tmp_path, kills=200, stops=20, messages=100_000, seconds=150, seed=seed)
    print(outcome)
    assert outcome.good, str(outcome)
    assert outcome.kills >= 200
    assert outcome.report.counts["accepted"] >= 100_000
    assert outcome.refused_after_stops > 0
    assert {"retry", "release", "lease"} <= set(outcome.report.duplicates)
    assert "unexplained" not in outcome.report.duplicates


@pytest.mark.slow
@long
@pytest.mark.timeout(1_800)
def test_eight_processes_that_write_all_the_time_never_see_a_lock(tmp_path: Path) -> None:
    outcome = chaos.run(tmp_path, kills=0, stops=0, messages=0, seconds=300, seed=1, crowd=chaos.WRITERS)
    print(outcome)
    assert outcome.engine_errors == {}
    assert outcome.good, str(outcome)
    assert outcome.report.counts["accepted"] > 10_000
    assert outcome.report.duplicates == {}
