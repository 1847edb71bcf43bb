"""Processes of both releases use one queue at once, as during a rolling upgrade."""

from collections import Counter
from pathlib import Path

from bide import Queue
from tests.upgrade.judge import crossings, drained
from tests.upgrade.release import Release
from tests.worker.processes import until

SHARE = 500  # messages of each producer
ORDERS = 300


def test_the_history_of_both_releases_on_one_queue_holds(before: Release, now: Release, url: str, tmp_path: Path) -> None:
    folder = tmp_path / "histories"
    folder.mkdir()
    common = {"url": url, "folder": str(folder), "share": SHARE}
    with (
        before.busy("crowd", name="before", seed=1, **common) as begin_before,
        now.busy("crowd", name="now", seed=2, **common) as begin_now,
    ):
        begin_before()
        begin_now()
    report = drained(url, folder)
    assert report.valid is True, str(report)
    met = crossings(folder)
    assert met["before", "now"], met
    assert met["now", "before"], met


def test_workers_of_both_releases_share_the_work_of_both(before: Release, now: Release, url: str, tmp_path: Path) -> None:
    paths = {release: tmp_path / f"{release.name}.log" for release in (before, now)}
    workers = [release.busy("work", url=url, path=str(path)) for release, path in paths.items()]
    with workers[0], workers[1], Queue(url) as queue:
        before.do("order", url=url, first=0, count=ORDERS)
        now.do("order", url=url, first=ORDERS, count=ORDERS)
        until(lambda: not (left := queue.stats("order")).pending and not left.leased)
    done = {release: path.read_text(encoding="utf-8").splitlines() for release, path in paths.items()}
    assert all(done.values()), {release.name: len(lines) for release, lines in done.items()}
    expected = [f"done {n}" for n in range(2 * ORDERS)] + [f"failed {n}" for n in range(0, 2 * ORDERS, 4)]
    assert Counter(line for lines in done.values() for line in lines) == Counter(expected)
