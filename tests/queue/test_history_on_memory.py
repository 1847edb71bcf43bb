"""Threads that send, receive, change and die, on the engine in memory; what they have written down is judged."""

from pathlib import Path

import pytest

from bide import Queue
from bide.prove import check
from bide.prove.workload import run


@pytest.mark.always
def test_a_run_with_dying_receivers_keeps_every_promise(tmp_path: Path) -> None:
    report = check(run(lambda: Queue("memory://history"), tmp_path, seed=1), steady=True)
    assert report.valid is True, str(report)
    assert report.counts["accepted"] > 1_000
    assert report.counts["delivered"] > report.counts["accepted"] / 2
    assert report.counts["recovered"] > 0
    assert report.counts["refused"] > 0
    assert {"retry", "release", "lease"} <= set(report.duplicates)
    assert "unexplained" not in report.duplicates
    assert all(landed for _, landed in report.faults.values())
