"""Procrastinate beside bide, by turns on the same PostgreSQL server, each as benchmarks/peers has it at its best."""

import dataclasses

from benchmarks.measure import Figure, figure
from benchmarks.peers.install import NotInstalled, environment
from benchmarks.peers.peer import Peer
from benchmarks.peers.registry import BIDE_ON_POSTGRES, PEERS
from benchmarks.peers.running import Run
from benchmarks.peers.servers import Stage
from benchmarks.peers.works import FAR, drain
from benchmarks.postgres_meter import Meter

ROUNDS = 3
PENDING = 100_000
TABLES = ("procrastinate_jobs", "procrastinate_events")


class OneServer(Stage):
    """Gives each of them a new database on the same server."""

    def __init__(self, meter: Meter) -> None:
        super().__init__()
        self._meter = meter
        self.database = ""

    def empty(self, server: str) -> str:
        url = self._meter.fresh()
        self._meter.settle_down()
        self.database = url.rpartition("/")[2]
        return url


def workers(meter: Meter, many: int) -> list[Figure]:
    """A worker process of each, with messages that are due already."""
    peer = _peer()
    if peer is None:
        return []
    ours = dataclasses.replace(BIDE_ON_POSTGRES, many=many)
    rates: dict[str, list[float]] = {"bide": [], "Procrastinate": []}
    with OneServer(meter) as stage:
        for _ in range(ROUNDS):
            rates["bide"].append(drain(ours, stage)["a second"])
            rates["Procrastinate"].append(drain(peer, stage)["a second"])
    times = [mine / theirs for mine, theirs in zip(*rates.values(), strict=True)]
    lines = [figure(f"worker process, {name}", "a second", each) for name, each in rates.items()]
    return [*lines, figure("… bide to Procrastinate", "times", times, ">= 8")]


def sizes(meter: Meter) -> list[Figure]:
    """What a pending message takes of Procrastinate's tables and their indexes."""
    peer = _peer()
    if peer is None:
        return []
    with OneServer(meter) as stage, Run(peer, stage, "batch") as run:
        run.send("spread", PENDING, FAR, FAR)
        taken = [meter.sizes(stage.database, table) for table in TABLES]
    return [
        figure(f"Procrastinate, {what} a message", "bytes", [sum(each[place] for each in taken) / PENDING])
        for place, what in enumerate(("tables", "indexes"))
    ]


def _peer() -> Peer | None:
    peer = PEERS["procrastinate"]
    try:
        environment(peer.name)
    except NotInstalled as error:
        print(f"Procrastinate is not measured: {error}", flush=True)
        return None
    return peer
