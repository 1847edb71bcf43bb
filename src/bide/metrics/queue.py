"""What a queue holds, and what of it falls due when, as metrics."""

import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from bide.core import options
from bide.core.times import duration_ms
from bide.engines.guard.able import others_can
from bide.errors import BadOption, BideError, Unsupported
from bide.logs import Log
from bide.metrics.counts import MOST_TOPICS, OTHER, TOPICS
from bide.queue import AsyncQueue, Queue
from bide.types import Duration, Stats, WorkerInfo

WITHIN = (60, 300, 3600, 86400)
STATES = ("scheduled", "ready", "leased", "dead")
SHARE = 10  # a look is followed by this many times its own length without one
GONE = 360  # looks after which another topic may have the labels of one that has had no message in any of them
SILENT = 15_000  # ms: a worker that has told nothing for so long is not counted
SCHEDULES = ("keys", "cancel", "lookup")
PATIENCE = 5.0  # seconds that a look may take before scrapes are answered without it, by what was found before
STALE = 60.0  # seconds that a look may take before it is told that there is none

_log = Log("bide.metrics")


class Labels:
    """Which topics, or schedules, have labels of their own: those that came first. They keep them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._look = 0
        self._seen: dict[str, int] = {}  # in which look each was last seen

    def note(self, names: Iterable[str]) -> None:
        """What a look has found."""
        self._look += 1
        there = sorted(names)
        self._seen.update((name, self._look) for name in there if name in self._seen)
        gone = iter([name for name, seen in self._seen.items() if self._look - seen > GONE])
        for name in there:
            if name not in self._seen and len(self._seen) >= self._most:
                if (other := next(gone, None)) is None:
                    return
                del self._seen[other]
            self._seen[name] = self._look

    def of(self, name: str) -> str:
        return name if name in self._seen else OTHER


class _Look:
    """One that is under way, or has ended."""

    def __init__(self) -> None:
        self.began: float = time.monotonic()
        self.over: threading.Event = threading.Event()

    def age(self) -> float:
        return time.monotonic() - self.began


class QueueMetrics(Collector):
    """Metrics of a queue for prometheus_client: register it in one process, as in `REGISTRY.register(QueueMetrics(queue))`.

    A look at the queue is shared by all who ask within `every`, and takes at most a tenth of the time.

    - topics: so many have labels of their own, those that come first. The rest is added up as `other`.
    """

    def __init__(self, queue: Queue | AsyncQueue, *, every: Duration = "10s", topics: int = TOPICS) -> None:
        if not isinstance(queue, Queue | AsyncQueue):
            raise BadOption(f"These are metrics of a queue, and this is a {type(queue).__name__}: QueueMetrics(queue).")
        self._queue: Queue = queue if isinstance(queue, Queue) else queue.sync
        if not self._queue.capabilities.inspect:
            raise Unsupported(
                f"{self._queue.session.setup.source.shown} can't count messages, so there are no metrics of the queue. "
                f"`bide worker --metrics` and ProcessMetrics tell what workers do. {others_can('inspect')}"
            )
        self._every = duration_ms(every, "every") / 1000
        most = options.count(topics, "topics", MOST_TOPICS)
        self._topics, self._schedules = Labels(most), Labels(most)
        self._lock = threading.Lock()
        self._look: _Look | None = None
        self._found: list[Metric] = []
        self._again = 0.0  # by time.monotonic(): until then it is told once more
        self._failing = False
        self._process = os.getpid()

    def describe(self) -> Iterator[Metric]:
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Looks anew, or tells what another scrape has found a moment ago."""
        look = self._begun()
        if look is not None:
            look.over.wait(max(0.0, PATIENCE - look.age()))
        if not self._found or (look is not None and not look.over.is_set() and look.age() > STALE):
            yield _success(False)
        else:
            yield from self._found

    def _begun(self) -> _Look | None:
        """In a thread of its own: an engine may not answer for long, and scrapers are not kept so long."""
        with self._lock:
            if self._process != os.getpid():  # a fork has no threads of its parent
                self._process, self._look, self._again = os.getpid(), None, 0.0
            if self._look is None and time.monotonic() >= self._again:
                self._look = _Look()
                threading.Thread(target=self._run, args=[self._look], name="bide-metrics", daemon=True).start()
            return self._look

    def _run(self, look: _Look) -> None:
        well, found = False, list[Metric]()
        try:
            found = list(self._metrics())
            well = True
        except BideError as error:
            if not self._failing:
                _log.warning("The queue can't be looked at for its metrics, so they are left out: %s", error)
        except Exception:
            _log.exception("A look at the queue for its metrics broke down, so they are left out")
        took = look.age()
        with self._lock:
            self._failing = not well
            self._again = time.monotonic() + max(self._every, SHARE * took if well else 0.0)
            self._found = [
                *found,
                _success(well),
                _gauge("bide_scrape_seconds", "How long the last look at the queue took.", took),
            ]
            self._look = None
        look.over.set()

    def _metrics(self) -> Iterator[Metric]:
        can = self._queue.capabilities
        stats = self._queue.stats(due_within=WITHIN)
        if stats.missing:
            raise BideError(f"{', '.join(stats.missing)} did not answer, and what is there is not known.")
        self._topics.note(stats.topics)
        yield from self._of_topics(stats.topics)
        if can.keys:
            workers = self._queue.workers()
            if workers.missing:
                raise BideError(f"{', '.join(workers.missing)} did not answer, and who works there is not known.")
            yield from self._of_workers(stats.topics, [each for each in workers if not each.stopped])
        if all(getattr(can, each) for each in SCHEDULES) and (schedules := self._queue.schedules()):
            yield from self._of_schedules({each.name: each.next for each in schedules if each.next is not None})

    def _of_topics(self, topics: Mapping[str, Stats]) -> Iterator[Metric]:
        told: dict[str, list[Stats]] = {}
        for topic, stats in topics.items():
            told.setdefault(self._topics.of(topic), []).append(stats)
        messages = GaugeMetricFamily(
            "bide_messages",
            "Stored messages by state. Above 10,000 scheduled or ready ones of a topic, PostgreSQL estimates.",
            labels=("topic", "state"),
        )
        coming = GaugeMetricFamily(
            "bide_due_within_messages", "Messages that fall due within so many seconds from now.", labels=("topic", "within")
        )
        overdue = GaugeMetricFamily(
            "bide_oldest_overdue_seconds",
            "How long a message has been due that nobody has received.",
            labels=("topic",),
        )
        paused = GaugeMetricFamily("bide_paused", "1 if the topic is paused; of other, how many are.", labels=("topic",))
        for topic, each in sorted(told.items()):
            for state in STATES:
                messages.add_metric((topic, state), sum(getattr(stats, state) for stats in each))
            for place, within in enumerate(WITHIN):
                coming.add_metric((topic, str(within)), sum(stats.due_within[place] for stats in each))
            overdue.add_metric((topic,), max(stats.oldest_overdue or 0.0 for stats in each))
            paused.add_metric((topic,), sum(stats.paused for stats in each))
        yield from (messages, coming, overdue, paused)

    def _of_workers(self, topics: Mapping[str, Stats], workers: Sequence[WorkerInfo]) -> Iterator[Metric]:
        there = [each for each in workers if self._queue.session.setup.now_ms() - each.seen <= SILENT]
        yield _gauge("bide_workers", "Worker processes that have told of themselves in the last 15 seconds.", len(there))
        served = {topic for each in there for topic in each.topics}
        family = GaugeMetricFamily("bide_unhandled", "Due messages of a topic that no worker serves.", labels=("topic",))
        told: dict[str, int] = {}
        for topic, stats in topics.items():
            label = self._topics.of(topic)
            told[label] = told.get(label, 0) + (0 if topic in served else stats.ready)
        for label, ready in sorted(told.items()):
            family.add_metric((label,), ready)
        yield family

    def _of_schedules(self, instants: Mapping[str, int]) -> Iterator[Metric]:
        self._schedules.note(instants)
        family = GaugeMetricFamily(
            "bide_schedule_next_seconds",
            "Seconds until the next instant of the schedule. Negative: it should have been handled so long ago.",
            labels=("schedule",),
        )
        now, first = self._queue.session.now(), dict[str, float]()
        for name, instant in instants.items():
            label = self._schedules.of(name)
            first[label] = min(first.get(label, float("inf")), (instant - now) / 1000)
        for label, seconds in sorted(first.items()):
            family.add_metric((label,), seconds)
        yield family


def _success(well: bool) -> Metric:
    return _gauge("bide_scrape_success", "1 if the queue could be looked at. If not, what it holds is left out.", float(well))


def _gauge(name: str, documentation: str, number: float) -> Metric:
    family = GaugeMetricFamily(name, documentation)
    family.add_metric((), number)
    return family
