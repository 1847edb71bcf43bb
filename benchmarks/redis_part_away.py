"""One of three masters freezes while everything of the API is used: how long the calls take that need only the others.

Each of the three by turns, for 40 s. Beside each figure is the bar: what such calls took just before, and 100 ms. A
receiver that is woken as the master freezes waits 0.2 s, once, to end what it listens to there: of a kind that has few calls,
one in a hundred may fall in that.
`BIDE_BENCH_AWAY=10` sets for how many seconds.
"""

import os
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.costs import load
from benchmarks.measure import Figure, figure
from tests.redis.book import Call, Window, percentile
from tests.redis.hands import PARTS
from tests.redis.part_away import Crowd, node_of, verdict, was_under_way
from tests.servers.cluster import RedisCluster

SECONDS = float(os.environ.get("BIDE_BENCH_AWAY", "40"))
ABOVE = 100  # ms
ENOUGH = 20  # calls: of fewer there is no 99th percentile


def run() -> list[Figure]:
    calls: list[tuple[Window, Sequence[Call]]] = []
    wrong: list[float] = []
    for part in PARTS:
        with RedisCluster(3, 0, cluster_require_full_coverage="no") as cluster, tempfile.TemporaryDirectory() as folder:
            with Crowd(cluster, Path(folder)) as crowd, crowd.without(part, SECONDS) as meanwhile:
                frozen = node_of(cluster, part)
                cluster.freeze(frozen)
                try:
                    meanwhile()
                finally:
                    cluster.thaw(frozen)
            calls.append((crowd.windows[0], crowd.book.calls()))
            wrong.append(len(verdict(crowd)))
    kinds = sorted({call.what for _, each in calls for call in each})
    lines = [line for what in kinds for line in _of_kind(what, calls)]
    return [*lines, figure("what the judge of the tests finds wrong", "", wrong, "<= 0"), load()]


def _of_kind(what: str, runs: Sequence[tuple[Window, Sequence[Call]]]) -> list[Figure]:
    before: list[float] = []
    away: list[Call] = []
    on_their_way: list[Call] = []
    for window, calls in runs:
        these = [call for call in calls if call.what == what]
        before += [1_000 * call.seconds for call in these if call.ended < window.began and not call.error]
        on_their_way += [call for call in these if was_under_way(call, window)]
        away += [call for call in these if window.concerns(call) and not was_under_way(call, window)]
    if min(len(before), len(away)) < ENOUGH:
        return []
    usual, seconds = percentile(before, 0.99), [1_000 * call.seconds for call in away]
    return [
        figure(f"{what}, p99 before", "ms", [usual]),
        figure(f"… a master frozen, {len(away)} calls", "ms", [percentile(seconds, 0.99)], f"<= {usual + ABOVE:.0f}"),
        figure("… failed", "", [float(sum(bool(call.error) for call in away))], "<= 0"),
        figure("… unknown, on their way as it froze", "", [float(len(on_their_way))]),
    ]
