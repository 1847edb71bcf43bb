"""Metrics: the four of the semantic conventions for messaging, lateness, and gauges of what is in a queue."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from opentelemetry import metrics
from opentelemetry.metrics import CallbackOptions, Meter, MeterProvider, Observation

from bide.errors import BideError
from bide.logs import Log
from bide.otel import conventions as c
from bide.queue import AsyncQueue, MessagesBegun, MessagesHandling, MessagesSending, Queue
from bide.types import Stats

_log = Log("bide.otel")
FRESH = 1.0  # seconds in which the gauges of one collection share one look at the queue


def meter_of(provider: MeterProvider | None) -> Meter:
    return metrics.get_meter(c.SCOPE, meter_provider=provider, schema_url=c.SCHEMA)


class Metering:
    """A subscriber: it measures sends and handlers. Within the spans of Tracing, so that exemplars lead to these."""

    def __init__(self, meter: Meter) -> None:
        advised = {"explicit_bucket_boundaries_advisory": c.DURATIONS}
        self._operations = meter.create_histogram(
            c.OPERATION_DURATION, "s", "Duration of messaging operation initiated by a producer or consumer client.", **advised
        )
        self._sent = meter.create_counter(
            c.SENT_MESSAGES, "{message}", "Number of messages producer attempted to send to the broker."
        )
        self._consumed = meter.create_counter(
            c.CONSUMED_MESSAGES, "{message}", "Number of messages that were delivered to the application."
        )
        self._processes = meter.create_histogram(c.PROCESS_DURATION, "s", "Duration of processing operation.", **advised)
        self._lateness = meter.create_histogram(
            c.LATENESS, "s", "From the due time to the delivery.", explicit_bucket_boundaries_advisory=c.LATE
        )

    @contextmanager
    def sending(self, event: MessagesSending) -> Iterator[None]:
        attributes, began = c.operation("send", "send", event.topic), time.perf_counter()
        try:
            yield
        except BaseException as error:
            attributes[c.ERROR] = c.name_of(type(error))
            raise
        finally:
            self._operations.record(time.perf_counter() - began, attributes)
            self._sent.add(event.count, _without_type(attributes))

    def begun(self, event: MessagesBegun) -> None:
        self._consumed.add(event.count, _without_type(c.operation("receive", "receive", event.topic)))

    @contextmanager
    def handling(self, event: MessagesHandling) -> Iterator[None]:
        attributes = c.operation("process", "process", event.topic)
        for each in event.messages:
            if each.lateness is not None:
                self._lateness.record(each.lateness, {c.DESTINATION: event.topic})
        began, raised = time.perf_counter(), None
        try:
            yield
        except BaseException as error:
            raised = type(error)
            raise
        finally:
            if (failure := c.failure(event, raised)) is not None:
                attributes[c.ERROR] = failure
            self._processes.record(time.perf_counter() - began, _without_type(attributes))


def _without_type(attributes: c.Attributes) -> c.Attributes:
    """For metrics of one operation only."""
    return {name: value for name, value in attributes.items() if name != c.OPERATION_TYPE}


class Gauges:
    """What is in a queue, by topic. A collection that asks for all of them looks once."""

    def __init__(self, queue: Queue, topics: Sequence[str] | None) -> None:
        self._queue = queue
        self._topics = topics
        self._seen: Stats = Stats()
        self._until = 0.0

    def made_by(self, meter: Meter) -> None:
        for name, unit, text, observed in (
            ("bide.messages", "{message}", "Messages in the queue, by state.", _counts),
            ("bide.oldest_overdue", "s", "How long the oldest message that is due has been waiting.", _overdue),
            ("bide.paused", "1", "1 while a topic is paused.", _paused),
        ):
            meter.create_observable_gauge(name, [self._told(observed)], unit, text)

    def _told(
        self, observed: Callable[[str, Stats], Iterable[Observation]]
    ) -> Callable[[CallbackOptions], Iterable[Observation]]:
        def observe(options: CallbackOptions) -> Iterable[Observation]:
            stats = self._stats()
            return [] if stats is None else [each for topic, of in stats.topics.items() for each in observed(topic, of)]

        return observe

    def _stats(self) -> Stats | None:
        """None if the queue can't be asked: then nothing is said, rather than what was so before."""
        if time.monotonic() >= self._until:
            try:
                found = self._queue.stats()
            except BideError as error:
                _log.warning("The gauges of a queue have no values now: %s", error)
                return None
            topics = found.topics if self._topics is None else {name: found.topics.get(name, Stats()) for name in self._topics}
            self._seen = Stats(topics=topics)
            self._until = time.monotonic() + FRESH
        return self._seen


def observe(
    queue: Queue | AsyncQueue, meter_provider: MeterProvider | None = None, *, topics: Sequence[str] | None = None
) -> None:
    """Have OpenTelemetry observe what is in a queue: `bide.messages` by topic and state, `bide.oldest_overdue` and
    `bide.paused` by topic.

    The queue is asked at each collection, in the thread of the metric reader. Do this in one process, since all of them would
    tell the same. The queue must stay open.

    - topics: only these, as each is a series of its own in your metrics. A topic without messages counts 0.
    """
    sync = queue if isinstance(queue, Queue) else queue.sync
    Gauges(sync, topics).made_by(meter_of(meter_provider))


def _counts(topic: str, stats: Stats) -> Iterable[Observation]:
    for state in ("scheduled", "ready", "leased", "dead"):
        yield Observation(getattr(stats, state), {c.DESTINATION: topic, "bide.state": state})


def _overdue(topic: str, stats: Stats) -> Iterable[Observation]:
    yield Observation(stats.oldest_overdue or 0.0, {c.DESTINATION: topic})


def _paused(topic: str, stats: Stats) -> Iterable[Observation]:
    yield Observation(int(stats.paused), {c.DESTINATION: topic})
