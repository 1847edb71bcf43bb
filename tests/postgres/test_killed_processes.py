"""Processes that are killed or stopped at random while they use one database: senders, receivers, and workers of all kinds."""

import os
import random
import signal
from pathlib import Path

import pytest

from tests.sqlite import chaos
from tests.sqlite.chaos_actors import note_url
from tests.worker import chaos as worker_chaos

pytestmark = pytest.mark.skipif(
    not (hasattr(signal, "pidfd_send_signal") and Path("/proc/self/stat").exists()), reason="needs Linux"
)
LONG = "BIDE_LONG" in os.environ
long = pytest.mark.skipif(not LONG, reason="minutes of chaos: BIDE_LONG=1 runs them")
KILLS, STOPS, MESSAGES, SECONDS = (200, 20, 50_000, 150) if LONG else (12, 4, 1_000, 5)


@pytest.mark.timeout(1_800 if LONG else 120)
def test_senders_and_receivers_that_are_killed_lose_nothing(postgres_url: str, tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    outcome = chaos.run(tmp_path, kills=KILLS, stops=STOPS, messages=MESSAGES, seconds=SECONDS, seed=seed, url=postgres_url)
    print(outcome)
    assert outcome.good, str(outcome)
    assert outcome.kills >= KILLS
    assert outcome.report.counts["accepted"] >= MESSAGES
    assert outcome.report.counts["delivered"] > MESSAGES / 3
    assert outcome.refused_after_stops > 0, str(outcome)
    assert "unexplained" not in outcome.report.duplicates


@pytest.mark.slow
@long
@pytest.mark.timeout(1_800)
def test_workers_that_are_killed_lose_nothing(postgres_url: str, tmp_path: Path) -> None:
    note_url(tmp_path, f"{postgres_url}?timeout=2")  # most stops last longer, and answers come while a process stands still
    seed = random.randrange(10**6)
    print(f"python -m tests.worker.chaos --minutes 10 --workers 6 --rate 40 --seed {seed} --url …")
    outcome = worker_chaos.run(tmp_path, minutes=10, workers=6, seed=seed, rate=40)
    print(outcome)
    assert outcome.good, str(outcome)
    killed = sum(done for kind, (_, done) in outcome.report.faults.items() if kind.startswith("kill"))
    print(f"{killed} kills")
    assert killed >= 100
    assert "unexplained" not in outcome.report.duplicates
