"""OpenTelemetry: spans and metrics of messages. It needs opentelemetry-api only: `pip install bide[otel]`."""

from bide.otel.instrumentor import BideInstrumentor
from bide.otel.meters import observe

__all__ = ["BideInstrumentor", "observe"]
