"""What a queue holds, and what of it falls due when, as metrics; and an application that serves them, for ASGI and for WSGI."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from bide.core import options
from bide.core.times import duration_ms
from bide.errors import BadOption, BideError
from bide.logs import Log
from bide.metrics.counts import OTHER, TOPICS
from bide.queue import AsyncQueue, Queue
from bide.types import Duration, Stats, WorkerInfo

WITHIN = (60, 300, 3600, 86400)
STATES = ("scheduled", "ready", "leased", "dead")
SHARE = 10  # a look is followed by this many times its own length without one
GONE = 3_600.0  # seconds after which another topic may have the labels of one that has had no message for so long
SILENT = 15_000  # ms: a worker that has told nothing for so long is not counted
SCHEDULES = ("keys", "cancel", "lookup")
PATIENCE = 5.0  # seconds that a scrape waits for the look of another one

_log = Log("bide.metrics")


class Labels:
    """Which topics, or schedules, have labels of their own: those that came first. They keep them."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._seen: dict[str, float] = {}  # when each was last seen

    def note(self, names: Iterator[str], now: float) -> None:
        for name in sorted(names):
            if name in self._seen or len(self._seen) < self._most or self._freed(now):
                self._seen[name] = now

    def _freed(self, now: float) -> bool:
        oldest = min(self._seen, key=self._seen.__getitem__)
        if gone := now - self._seen[oldest] > GONE:
            del self._seen[oldest]
        return gone

    def of(self, name: str) -> str:
        return name if name in self._seen else OTHER


class QueueMetrics(Collector):
    """Metrics of a queue for prometheus_client: register it in one process, as in `REGISTRY.register(QueueMetrics(queue))`.

    A look at the queue is shared by all who ask within `every`, and takes at most a tenth of the time.

    - topics: so many have labels of their own, those that come first. The rest is added up as `other`.
    """

    def __init__(self, queue: Queue | AsyncQueue, *, every: Duration = "10s", topics: int = TOPICS) -> None:
        if not isinstance(queue, Queue | AsyncQueue):
            raise BadOption(f"These are metrics of a queue, and this is a {type(queue).__name__}: QueueMetrics(queue).")
        self._queue: Queue = queue if isinstance(queue, Queue) else queue.sync
        self._every = duration_ms(every, "every") / 1000
        most = options.count(topics, "topics", 10_000)
        self._topics, self._schedules = Labels(most), Labels(most)
        self._lock = threading.Lock()
        self._found: list[Metric] = []
        self._until = 0.0  # by time.monotonic(): until then it is told again
        self._failing = False

    def describe(self) -> Iterator[Metric]:
        yield from ()

    def collect(self) -> Iterator[Metric]:
        """Looks anew, or tells what another scrape has found a moment ago."""
        with contextlib.suppress(TimeoutError), _held(self._lock, PATIENCE):
            if time.monotonic() >= self._until:
                self._look()
        yield from self._found

    def _look(self) -> None:
        began = time.monotonic()
        well, found = True, list[Metric]()
        try:
            found = list(self._metrics())
        except BideError as error:
            well = False
            if not self._failing:
                _log.warning("The queue can't be looked at for its metrics, so they are left out: %s", error)
        self._failing = not well
        took = time.monotonic() - began
        self._until = time.monotonic() + max(self._every, SHARE * took)
        self._found = [
            *found,
            _gauge("bide_scrape_success", "1 if the queue could be looked at. If not, what it holds is left out.", float(well)),
            _gauge("bide_scrape_seconds", "How long the last look at the queue took.", took),
        ]

    def _metrics(self) -> Iterator[Metric]:
        can = self._queue.capabilities
        if not can.inspect:
            return
        stats = self._queue.stats(due_within=WITHIN)
        if stats.missing:
            raise BideError(f"{', '.join(stats.missing)} did not answer, and what is there is not known.")
        self._topics.note(iter(stats.topics), time.monotonic())
        yield from self._of_topics(stats.topics)
        if can.keys:
            yield from self._of_workers(stats.topics, [each for each in self._queue.workers() if not each.stopped])
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
        self._schedules.note(iter(instants), time.monotonic())
        family = GaugeMetricFamily(
            "bide_schedule_next_seconds",
            "Seconds until the next instant of the schedule. Negative: it should have been handled so long ago.",
            labels=("schedule",),
        )
        now, first = self._queue.session.setup.now_ms(), dict[str, float]()
        for name, instant in instants.items():
            label = self._schedules.of(name)
            first[label] = min(first.get(label, float("inf")), (instant - now) / 1000)
        for label, seconds in sorted(first.items()):
            family.add_metric((label,), seconds)
        yield family


def _gauge(name: str, documentation: str, number: float) -> Metric:
    family = GaugeMetricFamily(name, documentation)
    family.add_metric((), number)
    return family


@contextlib.contextmanager
def _held(lock: threading.Lock, patience: float) -> Iterator[None]:
    """Raises TimeoutError if others hold it for longer."""
    if not lock.acquire(timeout=patience):
        raise TimeoutError
    try:
        yield
    finally:
        lock.release()


Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
StartResponse: TypeAlias = Callable[[str, list[tuple[str, str]]], object]

_HEADERS = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))


def registry(*collectors: Collector) -> CollectorRegistry:
    """One of its own: it tells of nothing else that is in this process."""
    made = CollectorRegistry(auto_describe=False)
    for each in collectors:
        made.register(each)
    return made


def page(metrics: CollectorRegistry, accept: str) -> tuple[str, bytes]:
    """The content type and the text, for what a client accepts."""
    encoder, content_type = choose_encoder(accept)
    return content_type, encoder(metrics)


class MetricsApp:
    """What `app` returns: an ASGI application; `.wsgi` is the same for WSGI. Every path answers."""

    def __init__(self, *collectors: Collector) -> None:
        self._registry = registry(*collectors)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"Metrics are told over HTTP, and this is a request of type {scope['type']}.")
        accept = b",".join(value for name, value in scope["headers"] if name.lower() == b"accept").decode("latin-1")
        status, content_type, body = 405, "text/plain; charset=utf-8", b"Ask with GET.\n"
        if scope["method"] in ("GET", "HEAD"):
            status, (content_type, body) = 200, await asyncio.to_thread(page, self._registry, accept)
        headers = [("Content-Type", content_type), ("Content-Length", str(len(body))), *_HEADERS]
        raw = [(name.lower().encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def wsgi(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """The same for WSGI."""
        status, content_type, body = "405 Method Not Allowed", "text/plain; charset=utf-8", b"Ask with GET.\n"
        method = environ["REQUEST_METHOD"]
        if method in ("GET", "HEAD"):
            status = "200 OK"
            content_type, body = page(self._registry, environ.get("HTTP_ACCEPT", ""))
        start_response(status, [("Content-Type", content_type), ("Content-Length", str(len(body))), *_HEADERS])
        return [] if method == "HEAD" else [body]


async def _lifespan(receive: Receive, send: Send) -> None:
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


def app(queue: Queue | AsyncQueue, *collectors: Collector, every: Duration = "10s", topics: int = TOPICS) -> MetricsApp:
    """Make an ASGI application that tells the metrics of a queue, and those of other collectors such as ProcessMetrics.

    `app(queue).wsgi` is the same for WSGI. The options are those of QueueMetrics.
    """
    return MetricsApp(QueueMetrics(queue, every=every, topics=topics), *collectors)
