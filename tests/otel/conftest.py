"""Queues that are traced, and a receiver of what OpenTelemetry's own exporter sends over HTTP."""

from collections.abc import Callable, Iterator

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from bide import ManualClock
from bide.otel import BideInstrumentor
from tests.otel.receiver import Received, receiver


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def received() -> Iterator[Received]:
    with receiver() as made:
        yield made


@pytest.fixture
def provider(received: Received) -> Iterator[TracerProvider]:
    made = TracerProvider(shutdown_on_exit=False)
    made.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{received.url}/v1/traces")))
    yield made
    made.shutdown()


@pytest.fixture
def traced(provider: TracerProvider) -> Iterator[Callable[..., None]]:
    """Begins to trace, with options."""

    def trace(**options: object) -> None:
        BideInstrumentor().instrument(tracer_provider=provider, **options)  # type: ignore[arg-type]

    yield trace
    BideInstrumentor().uninstrument()
