"""How late a message is at worst, by engine and cause: a worker dies, a wake-up is lost, the server freezes, and more.

Each cause is brought about for real. Figures are the time from the moment when a message could be handled (when it was due, or
when the cause was over) until a worker called its handler. `--json benchmarks/lateness_at_worst.json` makes them those of
docs/lateness.md.
"""

import itertools
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from benchmarks.at_worst import crew
from benchmarks.at_worst.places import PLACES, Losing, Place
from benchmarks.at_worst.receiver import Begun, Receiver, receiving
from benchmarks.costs import load
from benchmarks.measure import Figure, figure
from bide import Outgoing, Queue
from bide.engines.base import SWEEP

RESUMED = 30.0  # seconds after a fault in which work goes on
MANY, APART = 200, 0.05  # messages of a quiet run, and seconds between two
FEW = 3  # of what takes long
SOME = 50
FROZEN, HOLD = 10.0, 2.0  # seconds
SOON = 1.0  # seconds until a message is due
NORMAL, BUSY, LOST, STOOD, FAILED = "normal", "all busy", "wake-up lost", "server frozen", "failover"
KILLED, SUPERVISED = "worker killed", "supervised process killed"
WITHOUT = "without a server"
BARS = {NORMAL: SWEEP, BUSY: SWEEP, SUPERVISED: SWEEP, LOST: SWEEP, STOOD: RESUMED, FAILED: RESUMED}

_topics = map("worst.{}".format, itertools.count())


def run() -> list[Figure]:
    lines = []
    for engine, begins in PLACES.items():
        for begin in begins:
            with begin() as place, Queue(place.url, confirm=place.confirm) as queue:
                for cause, values in _measured(place, queue, first=begin is begins[0]):
                    bound = SWEEP + place.lease if cause == KILLED else BARS.get(cause, 0.0)
                    bar = f"<= {1_000 * bound:g}" if bound else ""
                    lines.append(figure(f"{cause}, {engine}", "ms", [1_000 * each for each in values], bar))
    return [*lines, load()]


def _measured(place: Place, queue: Queue, *, first: bool) -> list[tuple[str, Sequence[float]]]:
    found: list[tuple[str, Sequence[float]]] = []
    if first:
        found += [(NORMAL, _normal(place, queue)), (BUSY, [_busy(place, queue) for _ in range(FEW)])]
        if place.dies:
            found += [(KILLED, _killed(place, queue)), (SUPERVISED, _supervised(place, queue))]
    if place.losing is not None:
        found.append((LOST, _lost(place, queue, place.losing)))
    if place.freeze is not None and place.thaw is not None:
        found.append((STOOD, _frozen(place, queue, place.freeze, place.thaw)))
    if place.fail_over is not None:
        away, lates = _failed_over(place, queue, place.fail_over)
        found += [(FAILED, lates), (WITHOUT, [away])]
    return found


def _send(queue: Queue, topic: str, delays: Sequence[float]) -> None:
    queue.send_many(topic, [Outgoing({"number": number}, delay=delay) for number, delay in enumerate(delays)])


def _send_apart(queue: Queue, topic: str, delays: Sequence[float]) -> None:
    """Each by itself and with a key of its own, where there are keys, so that they are spread over the servers."""
    for number, delay in enumerate(delays):
        key = f"{topic}:{number}" if queue.capabilities.keys else None
        queue.send(topic, {"number": number}, delay=delay, key=key)


def _warm(queue: Queue, topic: str, receiver: Receiver) -> None:
    """It has begun to work, and has nothing to do now."""
    queue.send(topic, {"number": -1})
    assert receiver.next().number == -1


def _late(begun: Begun, over: float = 0.0) -> float:
    return begun.at - max(begun.due, over)


def _normal(place: Place, queue: Queue) -> list[float]:
    topic = next(_topics)
    with receiving(place.where(queue), topic) as receiver:
        _warm(queue, topic, receiver)
        _send(queue, topic, [SOON + number * APART for number in range(MANY)])
        return [_late(each) for each in receiver.all(MANY)]


def _busy(place: Place, queue: Queue) -> float:
    """After the one slot of a worker was free: it had work to do when the message fell due."""
    topic = next(_topics)
    with receiving(place.where(queue), topic, hold=HOLD, slots=1) as receiver:
        _send(queue, topic, [0.0])
        first = receiver.next()
        _send(queue, topic, [SOON])
        return _late(receiver.next(), first.at + HOLD)


def _killed(place: Place, queue: Queue) -> list[float]:
    """After the deaths of workers that had a message each. They die at once, while other workers have nothing to do."""
    with ExitStack() as working:
        pairs = []
        for _ in range(FEW):
            topic = next(_topics)
            dying = working.enter_context(receiving(place.url, topic, hold=3_600, slots=1))
            _warm(queue, topic, dying)
            other = working.enter_context(receiving(place.url, topic))
            _warm(queue, topic, other)  # the one that dies has no slot for this
            pairs.append((dying, other))
        for dying, _ in pairs:
            dying.kill()
        death = time.time()
        return [_late(other.next(), death) for _, other in pairs]


def _supervised(place: Place, queue: Queue) -> list[float]:
    """After the deaths of processes of `bide worker --processes 2` that had a message."""
    topic = next(_topics)
    return crew.killed(place.url, topic, lambda number: queue.send(topic, {"number": number}), FEW)


def _lost(place: Place, queue: Queue, losing: Losing) -> list[float]:
    topic, lates = next(_topics), []
    queue.stats()  # its keys or tables are there
    with losing(topic) as took, receiving(place.url, topic) as receiver:
        _warm(queue, topic, receiver)
        for number in range(FEW):
            time.sleep(0.2 * (1 + number))  # it has gone to sleep, some of its time ago
            took()
            _send(queue, topic, [0.1])
            lates.append(_late(receiver.next()))
            assert took(), "no wake-up was sent, so none was lost"
    return lates


def _frozen(place: Place, queue: Queue, freeze: Callable[[], None], thaw: Callable[[], None]) -> list[float]:
    """After the server goes on: messages fell due while it stood still."""
    topic = next(_topics)
    with receiving(place.url, topic) as receiver:
        _warm(queue, topic, receiver)
        _send_apart(queue, topic, [SOON + number * APART for number in range(SOME)])
        freeze()
        time.sleep(FROZEN)
        thaw()
        over = time.time()
        lates = [_late(each, over) for each in receiver.all(SOME) if each.at >= over]  # others are of masters that went on
    assert lates, "no message waited for the server"
    return lates


def _failed_over(place: Place, queue: Queue, fail_over: Callable[[], float]) -> tuple[float, list[float]]:
    """How long no server took writes, and how late messages were that fell due meanwhile or soon after, from the death on."""
    topic = next(_topics)
    with receiving(place.url, topic) as receiver:
        _warm(queue, topic, receiver)
        _send_apart(queue, topic, [number / 20 for number in range(SOME)])  # some servers are away for a tenth of a second
        begin = time.time()
        over = fail_over()
        found = receiver.all(SOME)
    assert any(begin < each.due < over for each in found), "no message fell due while there was no server"
    return over - begin, [_late(each, begin) for each in found if each.at >= begin]
