"""What bide costs on PostgreSQL beside a loop with SKIP LOCKED that is written by hand: by turns, on one server.

The server syncs each commit, as it does by default; µs of CPU show what that hides. The drain is that of one `bide worker`
process with a handler that does nothing, as in benchmarks/redis_bare.py, beside the loop in this process. Of the same pairs,
`python -m benchmarks.postgres_calls` tells what a message takes.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from benchmarks.costs import Cost, body, load
from benchmarks.measure import RUNS, Figure, figure
from benchmarks.postgres_meter import Meter
from benchmarks.skip_locked import ByHand
from benchmarks.throughput import Drained, worker_process
from bide import Outgoing, Queue
from tests.servers.postgres import PostgresServer

SINGLES, ONES, HUNDREDS = 1_000, 500, 10_000
BATCH, BATCHES, KEYED = 1_000, 20, 10
DRAINED = 20_000
DRAINS = (100, 1_000)  # handlers at the same time, and messages that the loop takes at a time
BODY = body()
DELAYS = [3_600.0 + second for second in range(BATCH)]


class Pair(NamedTuple):
    """Something that both do, so many times; `ready` messages are due before."""

    name: str
    many: int
    ours: Callable[[Queue, int], object]
    by_hand: Callable[[ByHand, int], object]
    bar: str
    ready: bool = False


def _receive(queue: Queue, limit: int, many: int) -> None:
    for _ in range(0, many, limit):
        queue.ack_many(queue.receive("t", limit=limit))


def _receive_one(queue: Queue, many: int) -> None:
    for _ in range(many):
        [delivery] = queue.receive("t")
        delivery.ack()


def _work(hand: ByHand, limit: int, many: int) -> None:
    for _ in range(0, many, limit):
        hand.work(limit, lambda body: None)


def _batches(queue: Queue, many: int) -> None:
    for _ in range(0, many, BATCH):
        queue.send_many("t", [Outgoing(BODY, delay=delay) for delay in DELAYS])


def _keyed(queue: Queue, many: int) -> None:
    for first in range(0, many, BATCH):
        queue.send_many("t", [Outgoing(BODY, delay=delay, key=_key(first, n)) for n, delay in enumerate(DELAYS)])


def _key(first: int, number: int) -> str:
    return f"order:{first + number}"


PAIRS = (
    Pair(
        "single send",
        SINGLES,
        lambda queue, many: [queue.send("t", BODY, delay=900) for _ in range(many)],
        lambda hand, many: [hand.send(BODY, 900) for _ in range(many)],
        ">= 60",
    ),
    Pair(
        "batch of 1,000",
        BATCH * BATCHES,
        _batches,
        lambda hand, many: [hand.send_many([BODY] * BATCH, DELAYS) for _ in range(0, many, BATCH)],
        ">= 100",
    ),
    Pair(
        "batch of 1,000 with keys",
        BATCH * KEYED,
        _keyed,
        lambda hand, many: [
            hand.send_keyed([BODY] * BATCH, DELAYS, [_key(first, n) for n in range(BATCH)]) for first in range(0, many, BATCH)
        ],
        ">= 80",
    ),
    Pair("receive 1 + ack", ONES, _receive_one, lambda hand, many: _work(hand, 1, many), ">= 70", ready=True),
    Pair(
        "receive 100 + ack",
        HUNDREDS,
        lambda queue, many: _receive(queue, 100, many),
        lambda hand, many: _work(hand, 100, many),
        ">= 90",
        ready=True,
    ),
)
DRAIN = Pair("drain", DRAINED, lambda queue, many: None, lambda hand, many: None, "", ready=True)


def run() -> list[Figure]:
    with PostgresServer(fsync=True) as server:
        meter = Meter(server)
        return [*_pairs(meter), *_drains(meter), load()]


@contextmanager
def ready(meter: Meter, pair: Pair) -> Iterator[tuple[Queue, ByHand]]:
    """Both in one database, connected, and with what is to be received."""
    url = meter.fresh()
    hand = ByHand(url)
    with Queue(url) as queue:
        for _ in range(10):  # so often that psycopg has prepared what it will ask
            queue.send("t", BODY)
            _receive_one(queue, 1)
            hand.send(BODY)
            _work(hand, 1, 1)
        _batches(queue, BATCH)
        for _ in range(0, pair.many if pair.ready else 0, BATCH):
            queue.send_many("t", [BODY] * BATCH)
            hand.send_many([BODY] * BATCH, [0.0] * BATCH)
        yield queue, hand
    hand.close()


def _pairs(meter: Meter) -> list[Figure]:
    costs: dict[str, list[tuple[Cost, Cost]]] = {pair.name: [] for pair in PAIRS}
    for turn in range(RUNS):
        for pair in PAIRS:
            with ready(meter, pair) as (queue, hand):
                if turn % 2:
                    theirs, ours = _by_hand(meter, pair, hand), _ours(meter, pair, queue)
                else:
                    ours, theirs = _ours(meter, pair, queue), _by_hand(meter, pair, hand)
            costs[pair.name].append((ours, theirs))
    return [line for pair in PAIRS for line in _lines(pair.name, costs[pair.name], pair.bar)]


def _ours(meter: Meter, pair: Pair, queue: Queue) -> Cost:
    meter.start()
    pair.ours(queue, pair.many)
    return meter.stop(pair.many)


def _by_hand(meter: Meter, pair: Pair, hand: ByHand) -> Cost:
    meter.start()
    pair.by_hand(hand, pair.many)
    return meter.stop(pair.many)


def _lines(name: str, costs: list[tuple[Cost, Cost]], bar: str) -> list[Figure]:
    return [
        figure(name, "a second", [ours.rate for ours, _ in costs]),
        figure("… by hand", "a second", [hand.rate for _, hand in costs]),
        figure("… the one to the other", "%", [100 * ours.rate / hand.rate for ours, hand in costs], bar),
        figure("… client's CPU", "µs", [ours.client for ours, _ in costs]),
        figure("… client's CPU by hand", "µs", [hand.client for _, hand in costs]),
        figure("… server's CPU", "µs", [ours.server for ours, _ in costs]),
        figure("… server's CPU by hand", "µs", [hand.server for _, hand in costs]),
    ]


def _drains(meter: Meter) -> list[Figure]:
    ours: dict[int, list[Drained]] = {many: [] for many in DRAINS}
    theirs: dict[int, list[Cost]] = {many: [] for many in DRAINS}
    for _ in range(RUNS):
        for many in DRAINS:
            ours[many].append(_drain(meter, many))
            with ready(meter, DRAIN) as (_, hand):
                meter.start()
                _work(hand, many, DRAINED)
                theirs[many].append(meter.stop(DRAINED))
    first, last = ([each.rate for each in ours[many]] for many in DRAINS)
    lines: list[Figure] = []
    for many in DRAINS:
        lines += [
            figure(f"bide worker --concurrency {many}", "a second", [each.rate for each in ours[many]]),
            figure(f"… by hand, {many} at a time", "a second", [each.rate for each in theirs[many]]),
            figure("… worker's CPU", "µs", [each.cpu for each in ours[many]]),
        ]
    between = [100 * more / less for less, more in zip(first, last, strict=True)]
    return [*lines, figure("… 1,000 handlers to 100", "%", between, ">= 100")]


def _drain(meter: Meter, concurrency: int) -> Drained:
    url = meter.fresh()
    with Queue(url) as queue:
        queue.send_many("t", [BODY] * DRAINED)
    meter.settle_down()
    return worker_process(url, DRAINED, concurrency)
