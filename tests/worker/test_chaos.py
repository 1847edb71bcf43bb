"""Workers of all kinds are killed, stopped and asked to end at random over one file; what they have written down is judged."""

import os
import random
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from bide import Queue
from tests.sqlite.chaos_clock import WallClock, followed, own_time
from tests.worker import chaos
from tests.worker.chaos_mishaps import CUT_OFF, DEAF, NO_THREADS

pytestmark = pytest.mark.skipif(
    not (hasattr(signal, "pidfd_send_signal") and Path("/proc/self/stat").exists()), reason="needs Linux"
)
long = pytest.mark.skipif("BIDE_LONG" not in os.environ, reason="minutes of chaos: BIDE_LONG=1 runs them")

FEW = ("async", "sync", "supervised", "in-code")
QUICK = ("quick", "supervised-quick")  # what is claimed ahead is held when they are killed
CAUGHT = {
    "drops acks": {"final"},
    "accepts old tokens": {"fencing", "final"},
    "loses some": {"no loss"},
    "ends leases early": {"one live lease"},
    "rolls back": {"final"},
    "skips attempts": {"attempts"},
    "claims early": {"never early"},
    "delivers twice": {"one live lease", "fencing"},
    "acks what failed": {"handled"},
    "acks unhandled": {"handled"},
}
"""What gives each planted fault away: one of these at least."""


@pytest.mark.always
@pytest.mark.timeout(240)
def test_a_few_seconds_of_kills_stops_and_signals_break_no_promise(tmp_path: Path) -> None:
    outcome = chaos.run(tmp_path, minutes=0.1, workers=5, seed=1, rate=80, faults=2.0, kinds=(*FEW, "supervised-quick"))
    assert outcome.good, str(outcome)
    landed = {kind: done for kind, (_, done) in outcome.report.faults.items()}
    for fault in ("kill", "stop", "ask", "suspend", "start no threads", "fail in logs"):
        assert sum(done for kind, done in landed.items() if kind.startswith(fault)), str(outcome)
    assert outcome.report.counts["accepted"] > 300
    assert outcome.report.counts["handled"] > 200
    assert outcome.report.counts["refused"], str(outcome)
    assert "unexplained" not in outcome.report.duplicates


@pytest.mark.slow
@pytest.mark.timeout(480)
def test_kills_in_the_middle_of_quick_handlers_break_no_promise(tmp_path: Path) -> None:
    outcome = chaos.run(tmp_path, minutes=0.1, workers=2, seed=8, rate=100, faults=2.0, kinds=QUICK)
    assert outcome.good, str(outcome)
    assert outcome.report.counts["handled"] > 1_000
    assert "unexplained" not in outcome.report.duplicates


CALM = ("async", "sync", "supervised")


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("only", [(), (CUT_OFF,)], ids=["calm", "heartbeats without a connection"])
def test_no_lease_is_lost_without_a_mishap_that_explains_it(tmp_path: Path, only: Sequence[str]) -> None:
    """And handlers take longer than a lease, and block the event loop for longer than one."""
    outcome = chaos.run(tmp_path, minutes=0.2, workers=3, seed=5, rate=40, kinds=CALM, only=only)
    assert outcome.good, str(outcome)
    assert outcome.report.counts["handled"] > 200
    assert all(outcome.report.faults[kind][1] for kind in only)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("plant", "only"), [("renews nothing", ()), ("does not stand in", (CUT_OFF,))])
def test_leases_that_a_planted_fault_loses_are_found(tmp_path: Path, plant: str, only: Sequence[str]) -> None:
    outcome = chaos.run(tmp_path, minutes=0.2, workers=3, seed=6, rate=40, kinds=CALM, only=only, plant=plant)
    assert not outcome.good
    assert any("no mishap explains it" in each for each in outcome.complaints), str(outcome)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("plant", "said"), [("waits for logs", "does not end"), ("flushes without care", "has ended with RuntimeError")]
)
def test_an_end_that_a_planted_fault_makes_depend_on_the_logs_is_found(
    tmp_path: Path, plant: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("kill", "stop", "suspend"):
        monkeypatch.setattr(chaos.Director, each, chaos.Director.ask_to_end)
    outcome = chaos.run(tmp_path, minutes=0.1, workers=2, seed=7, rate=40, faults=2.0, kinds=("async",), plant=plant)
    assert not outcome.good
    assert any(said in each for each in outcome.complaints), str(outcome)


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_clock_that_is_set_again_and_again_breaks_no_promise(tmp_path: Path) -> None:
    """Attempts are counted one by one, also when leases end because of it."""
    outcome = chaos.run(tmp_path, minutes=0.1, workers=4, seed=4, rate=80, faults=2.0, kinds=FEW, clock=True)
    assert outcome.good, str(outcome)
    assert outcome.report.faults["set the clock"][1]
    assert outcome.report.faults["set a process's own clock"][1]
    assert outcome.report.counts["handled"] > 200


def test_a_clock_that_is_set_is_the_one_that_an_engine_in_a_file_goes_by(tmp_path: Path) -> None:
    clock = WallClock.new(tmp_path)
    with followed(tmp_path), Queue(f"sqlite:///{tmp_path}/bide.db") as queue:
        first = queue.send("t", delay=0).due
        clock.set(300)
        later = queue.send("t", delay=0).due
        with own_time(lambda: 300 * 10**9):
            of_its_own = queue.send("t", delay=0).due
    assert later - first >= 300_000
    assert of_its_own - first < 600_000


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("plant", sorted(CAUGHT))
def test_a_planted_fault_is_found(tmp_path: Path, plant: str) -> None:
    kinds = ("async", "sync", "in-code")
    outcome = chaos.run(tmp_path, minutes=0.1, workers=3, seed=2, rate=80, faults=3.0, kinds=kinds, plant=plant)
    assert outcome.report.valid is False, str(outcome)
    assert CAUGHT[plant] & set(outcome.report.violations), str(outcome)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize(
    ("plant", "only"),
    [("counts threads too soon", NO_THREADS), ("logs first", DEAF)],
    ids=["counts threads too soon", "logs first"],
)
def test_places_that_a_planted_fault_leaks_are_found(
    tmp_path: Path, plant: str, only: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Messages are never handled then, and never come back: nothing else befalls the workers that would bring them back."""
    monkeypatch.setattr(chaos, "SETTLE", 15.0)
    outcome = chaos.run(tmp_path, minutes=0.2, workers=2, seed=3, rate=80, kinds=("sync",), plant=plant, only=(only,))
    assert not outcome.good
    assert outcome.report.faults[only][1]
    assert any("there was still something to do" in each for each in outcome.complaints), str(outcome)


@pytest.mark.slow
@long
@pytest.mark.timeout(2_400)
def test_ten_minutes_of_ten_workers_break_no_promise(tmp_path: Path) -> None:
    seed = random.randrange(10**6)
    print(f"python -m benchmarks.worker_chaos --minutes 10 --workers 10 --seed {seed}")
    outcome = chaos.run(tmp_path, minutes=10, workers=10, seed=seed)
    print(outcome)
    assert outcome.good, str(outcome)
    assert outcome.refused_after_stops
    assert {"retry", "release", "requeue", "lease"} <= set(outcome.report.duplicates)
    assert all(landed for _, landed in outcome.report.faults.values())
