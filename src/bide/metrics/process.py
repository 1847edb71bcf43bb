"""What one process has sent, received and ended: counted from events, and told as metrics."""

from collections.abc import Iterator, Sequence

from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from bide.core import options
from bide.metrics.counts import CALL_SECONDS, ENDED, MOST_TOPICS, SECONDS, SENT, TOPICS, Counting, SharedCounts, under_way


class CountsCollector(Collector):
    """Tells what some processes have counted, added up. Counters and histograms never fall, whatever becomes of a process."""

    def __init__(self, counts: SharedCounts, *, workers: int = 0) -> None:
        """`workers`: how many of them, the first ones, have slots."""
        self._counts = counts
        self._workers = workers

    def describe(self) -> Iterator[Metric]:
        yield from ()

    def collect(self) -> Iterator[Metric]:
        numbers, layout = self._counts.total(), self._counts.layout
        topics = list(enumerate(self._counts.topics.each()))
        sent = CounterMetricFamily(
            "bide_sent", "Sends that the engine has accepted, by what they did.", labels=("topic", "outcome")
        )
        begun = CounterMetricFamily("bide_begun", "Deliveries that have begun.", labels=("topic",))
        ended = CounterMetricFamily("bide_ended", "Deliveries that have ended, by how.", labels=("topic", "outcome"))
        late = HistogramMetricFamily(
            "bide_lateness_seconds", "From the due time of a message to its delivery.", labels=("topic",)
        )
        took = HistogramMetricFamily(
            "bide_run_seconds",
            "Of work, from the call of a handler to its end. Of a receiver without one, how long it had the message.",
            labels=("topic",),
        )
        for row, topic in topics:
            _tell(sent, topic, SENT, numbers[layout.sent.at(row) :], always=1)
            if count := numbers[layout.begun.at(row)]:
                begun.add_metric((topic,), count)
                _tell(ended, topic, ENDED, numbers[layout.ended.at(row) :], always=len(ENDED))
            _histogram(late, (topic,), SECONDS, numbers[layout.lateness.at(row) :])
            _histogram(took, (topic,), SECONDS, numbers[layout.seconds.at(row) :])
        yield from (sent, begun, ended, late, took)
        yield from self._calls(numbers)
        if self._workers:
            yield from self._work(topics)

    def _calls(self, numbers: Sequence[float]) -> Iterator[Metric]:
        layout, verbs, names = self._counts.layout, self._counts.verbs.each(), self._counts.errors.each()
        took = HistogramMetricFamily("bide_engine_call_seconds", "Of calls of the engine.", labels=("verb",))
        errors = CounterMetricFamily("bide_engine_errors", "Calls of the engine that have failed.", labels=("verb", "error"))
        for row, verb in enumerate(verbs):
            _histogram(took, (verb,), CALL_SECONDS, numbers[layout.calls.at(row) :])
            for column, error in enumerate(names):
                if count := numbers[layout.errors.at(row) + column]:
                    errors.add_metric((verb, error), count)
        yield from (took, errors)

    def _work(self, topics: Sequence[tuple[int, str]]) -> Iterator[Metric]:
        numbers, layout = self._counts.total(self._workers), self._counts.layout
        running = GaugeMetricFamily("bide_running", "Messages that this worker has.", labels=("topic",))
        slots = GaugeMetricFamily("bide_slots", "Places for handlers.", labels=("state",))
        total = 0.0
        for row, topic in topics:
            now = max(0.0, under_way(numbers, layout, row) - numbers[layout.gone.at(row)])
            total += now
            if numbers[layout.begun.at(row)]:
                running.add_metric((topic,), now)
        most = numbers[layout.slots.start]
        slots.add_metric(("busy",), min(total, most))
        slots.add_metric(("free",), max(0.0, most - total))
        yield from (running, slots)


class WorkerInfoMetric(Collector):
    def __init__(self, version: str, engine: str) -> None:
        self._labels = {"version": version, "engine": engine}

    def describe(self) -> Iterator[Metric]:
        yield from ()

    def collect(self) -> Iterator[Metric]:
        yield InfoMetricFamily("bide_worker", "Of this worker.", self._labels)


class ProcessMetrics(Counting, CountsCollector):
    """Metrics of this process, for prometheus_client: subscribe it to queues, and register it.

    `queue.events.subscribe(metrics)`, then `REGISTRY.register(metrics)`.

    - topics: so many have labels of their own, those that come first. The rest is told as `other`.
    """

    def __init__(self, *, topics: int = TOPICS) -> None:
        counts = SharedCounts(topics=options.count(topics, "topics", MOST_TOPICS))
        Counting.__init__(self, counts)
        CountsCollector.__init__(self, counts)


def _tell(family: CounterMetricFamily, topic: str, names: Sequence[str], numbers: Sequence[float], *, always: int) -> None:
    """A counter of each outcome. The first ones are told from the start: else nobody would see that they rise."""
    if any(numbers[: len(names)]):
        for place, name in enumerate(names):
            if numbers[place] or place < always:
                family.add_metric((topic, name), numbers[place])


def _histogram(family: HistogramMetricFamily, labels: Sequence[str], bounds: Sequence[float], numbers: Sequence[float]) -> None:
    many = len(bounds)
    if not any(numbers[: many + 1]):
        return
    below, buckets = 0.0, []
    for bound, count in zip([*map(str, bounds), "+Inf"], numbers[: many + 1], strict=True):
        below += count
        buckets.append((bound, below))
    family.add_metric(labels, buckets, numbers[many + 1])
