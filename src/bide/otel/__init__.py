"""OpenTelemetry: spans and metrics of messages, for all queues of a process. It needs opentelemetry-api only.

`opentelemetry-instrument` finds BideInstrumentor by its entry point.
"""

from collections.abc import Collection
from typing import Any, ClassVar, Self

from opentelemetry.metrics import MeterProvider
from opentelemetry.trace import TracerProvider

from bide.core.times import duration_ms
from bide.errors import BadOption
from bide.otel.meters import Metering, meter_of, observe
from bide.otel.traces import SettleSpans, Tracing
from bide.queue import Subscription, subscribe
from bide.types import Duration

__all__ = ["BideInstrumentor", "observe"]


class BideInstrumentor:
    """Makes spans of sends and handlers, by the semantic conventions for messaging 1.45. There is one for the process.

    It has the methods of the instrumentors of `opentelemetry-instrumentation`, and does not need that package.
    """

    _one: ClassVar["BideInstrumentor | None"] = None
    _subscriptions: list[Subscription]

    def __new__(cls) -> Self:
        if cls._one is None:
            cls._one = super().__new__(cls)
            cls._one._subscriptions = []
        assert isinstance(cls._one, cls)
        return cls._one

    @property
    def is_instrumented_by_opentelemetry(self) -> bool:
        return bool(self._subscriptions)

    def instrumentation_dependencies(self) -> Collection[str]:
        """No package but bide itself."""
        return []

    def instrument(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
        link_after: Duration = "30s",
        semantic_metrics: bool = False,
        settle_spans: bool = False,
        **others: Any,
    ) -> None:
        """Begin, for all queues of this process. To call it again does nothing until `uninstrument`.

        - tracer_provider, meter_provider: the global ones by default, also if these are set later.
        - link_after: a message that is due later than this after its send is handled in a new trace, which links to the send.
          The same counts for a later attempt. With 0, only what is due at once stays in the sender's trace.
        - semantic_metrics: also record the metrics `messaging.client.operation.duration`, `messaging.client.sent.messages`,
          `messaging.client.consumed.messages`, `messaging.process.duration`, and `bide.lateness`.
        - settle_spans: also make a span for each call that ends deliveries. In a worker, each is a trace of its own.
        - others: what `opentelemetry-instrument` may pass, such as skip_dep_check. It changes nothing.

        Raises BadOption or BadTime for a link_after that is no duration.
        """
        seconds = duration_ms(link_after, "link_after") / 1000
        if unknown := sorted(set(others) - {"skip_dep_check", "raise_exception_on_conflict"}):
            raise BadOption(f"instrument() has no option {unknown[0]}. See the docstring of BideInstrumentor.instrument.")
        if self._subscriptions:
            return
        tracing = Tracing(tracer_provider, seconds)
        self._subscriptions.append(subscribe(tracing))
        if settle_spans:
            self._subscriptions.append(subscribe(SettleSpans(tracing)))
        if semantic_metrics:
            self._subscriptions.append(subscribe(Metering(meter_of(meter_provider))))

    def uninstrument(self, **others: Any) -> None:
        """End it. Messages that were sent meanwhile keep their headers."""
        while self._subscriptions:
            self._subscriptions.pop().close()
