"""Metrics by the conventions, and gauges of a queue, over OTLP."""

from collections.abc import Iterator
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader

from bide import Exists, ManualClock, Queue
from bide.otel import observe
from tests.otel.receiver import Received


@pytest.fixture
def meters(received: Received) -> Iterator[MeterProvider]:
    reader = PeriodicExportingMetricReader(OTLPMetricExporter(f"{received.url}/v1/metrics"), float("inf"))
    made = MeterProvider([reader], shutdown_on_exit=False)
    yield made
    made.shutdown()


@pytest.fixture
def queue(clock: ManualClock) -> Iterator[Queue]:
    with Queue("memory://", clock=clock) as made:
        yield made


def test_the_metrics_of_the_conventions(
    queue: Queue, traced: Any, meters: MeterProvider, received: Received, clock: ManualClock
) -> None:
    traced(semantic_metrics=True, meter_provider=meters)

    @queue.task("t")
    def handle(number: int) -> None:
        if number == 1:
            raise ValueError

    handle.send_many([{"number": 1}, {"number": 2}])
    queue.send("u", 1, key="k")
    with pytest.raises(Exists):
        queue.send("u", 1, key="k", if_exists="error")
    queue.testing.advance(0, raise_errors=False)
    meters.force_flush()

    own = {"messaging.system": "bide", "messaging.destination.name": "t"}
    process = own | {"messaging.operation.name": "process"}
    assert received.points("messaging.process.duration") == [
        (process | {"error.type": "ValueError"}, 1),
        (process, 1),
    ]
    send = own | {"messaging.operation.name": "send"}
    failed = send | {"messaging.destination.name": "u", "error.type": "bide.errors.Exists"}
    assert (send, 2) in received.points("messaging.client.sent.messages")
    assert (failed, 1) in received.points("messaging.client.sent.messages")
    duration = {frozenset(each.items()): count for each, count in received.points("messaging.client.operation.duration")}
    assert duration[frozenset((send | {"messaging.operation.type": "send"}).items())] == 1
    assert received.points("messaging.client.consumed.messages") == [(own | {"messaging.operation.name": "receive"}, 2)]
    assert received.metrics["messaging.process.duration"].unit == "s"


def test_lateness_leads_to_a_trace(queue: Queue, traced: Any, meters: MeterProvider, received: Received) -> None:
    traced(semantic_metrics=True, meter_provider=meters)

    @queue.task("t")
    def handle() -> None: ...

    handle.send()
    queue.testing.advance(0)
    meters.force_flush()

    [span] = received.named("process t")
    [point] = received.metrics["bide.lateness"].histogram.data_points
    [exemplar] = point.exemplars
    assert (exemplar.trace_id.hex(), exemplar.span_id.hex()) == (span.trace, span.id)


def test_gauges_of_a_queue(queue: Queue, meters: MeterProvider, received: Received, clock: ManualClock) -> None:
    observe(queue, meters)
    queue.send_many("t", [1, 2])
    queue.send("t", 3, delay="1h")
    queue.receive("t")
    queue.pause("u")
    clock.advance(5)
    meters.force_flush()

    counts = {
        (each["messaging.destination.name"], each["bide.state"]): value for each, value in received.points("bide.messages")
    }
    assert [counts["t", state] for state in ("scheduled", "ready", "leased", "dead")] == [1, 1, 1, 0]
    overdue = {each["messaging.destination.name"]: value for each, value in received.points("bide.oldest_overdue")}
    assert overdue == {"t": 5.0, "u": 0.0}
    assert ({"messaging.destination.name": "u"}, 1) in received.points("bide.paused")


def test_gauges_of_some_topics_and_none_of_a_queue_that_cannot_be_asked(
    meters: MeterProvider, received: Received, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bide.otel.meters.FRESH", 0.0)
    with Queue("memory://") as queue:
        observe(queue.aio, meters, topics=["empty"])
        queue.send("t", 1)
        meters.force_flush()
        assert {each["messaging.destination.name"] for each, _ in received.points("bide.messages")} == {"empty"}
    received.metrics.clear()
    meters.force_flush()
    assert received.metrics == {}
    assert "The gauges of a queue have no values now: The queue is closed" in caplog.text
