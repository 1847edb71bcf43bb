"""Spans of sends and handlers, and how a handler's span belongs to that of the send: as a child, or by a link.

A message that is due later than `link_after` gets a new trace: a trace of three days could not be read, and whoever samples
traces has decided on it long before its end. The sender decides, and says so in the header "bide-trace"; for others it has
the time of the send, as such a message may be given a later time, or be requeued. A later attempt stays in the trace of the
first one if it is delivered within `link_after` of that, and is a new trace otherwise. All of them link to the send.
"""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, Span, SpanContext, SpanKind, StatusCode, Tracer, TracerProvider

from bide.errors import BideError
from bide.otel import conventions as c
from bide.queue import MessagePart, MessagesEnded, MessagesHandling, MessagesSending
from bide.queue.around import TRACE

LINK = "link"  # in the header TRACE: it is handled in a trace of its own. Else there are seconds since 1970
CLOCKS = 60.0  # seconds by which the clocks of senders and engines may differ
_MOST_LINKS = 128  # of a span: what the SDK keeps by default
_next: ContextVar[int] = ContextVar("bide_trace_id", default=0)


class Origin(NamedTuple):
    """Where the span of a handler belongs."""

    context: Context
    links: Sequence[Link]
    trace_id: int = 0  # of a new trace, if that is known


def origin(message: MessagePart, link_after: float) -> Origin:
    """Of one message."""
    context, sender, links = _sent_in(message)
    soon = _since_first(message) <= link_after
    if links and soon and not _is_later(message, link_after):
        return Origin(context, links)
    apart = trace.set_span_in_context(trace.INVALID_SPAN, context)  # with the baggage
    return Origin(apart, links, _trace_id(message, sender) if soon else 0)


def links_of(messages: Sequence[MessagePart]) -> Sequence[Link]:
    """To the sends of many messages, each once."""
    found: dict[int, Link] = {}
    for each in messages:
        if len(found) == _MOST_LINKS:
            break
        _, sender, links = _sent_in(each)
        found.update((sender.span_id, link) for link in links)
    return list(found.values())


def _sent_in(message: MessagePart) -> tuple[Context, SpanContext, Sequence[Link]]:
    """What the sender's context was, as the headers tell it; and a link to it, if it had a span."""
    context = propagate.extract(c.plain(message.headers), context=Context())
    sender = trace.get_current_span(context).get_span_context()
    return context, sender, [Link(sender)] if sender.is_valid else []


def _is_later(message: MessagePart, link_after: float) -> bool:
    """Whether it was sent to be due later; or was moved to a later time since, before its first attempt."""
    told = message.headers.get(TRACE, "")
    if told == LINK or not told.isdecimal() or message.due is None or message.attempt != 1 or message.tried:
        return told == LINK
    return message.due / 1000 - int(told) > link_after + CLOCKS


def _since_first(message: MessagePart) -> float:
    """Seconds from the first attempt to this one. If a worker died meanwhile, only the lateness tells."""
    if message.tried:
        return message.tried
    return 0.0 if message.attempt == 1 else message.lateness or 0.0


def _trace_id(message: MessagePart, sender: SpanContext) -> int:
    """The same in all processes, so that an attempt in another one is in the same trace."""
    seed = f"{message.id} {sender.trace_id:x} {sender.span_id:x}"
    return int.from_bytes(hashlib.sha256(seed.encode()).digest()[:16]) or 1


class TraceIds:
    """In place of the `id_generator` of a tracer of OpenTelemetry's SDK: a new trace may be given its id."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def generate_trace_id(self) -> int:
        found: int = _next.get() or self._inner.generate_trace_id()
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class Tracing:
    """A subscriber: a span around each send and each handler. Or for each call that ends deliveries: see SettleSpans."""

    def __init__(self, provider: TracerProvider | None, link_after: float) -> None:
        """Without a provider, the global one, also if that is set later."""
        self._provider = provider
        self._link_after = link_after
        self._known: Tracer | None = None

    @property
    def tracer(self) -> Tracer:
        if self._known is not None:
            return self._known
        provider = self._provider or trace.get_tracer_provider()
        found = provider.get_tracer(c.SCOPE, schema_url=c.SCHEMA)
        if isinstance(provider, trace.ProxyTracerProvider):  # none is set yet
            return found
        inner = getattr(found, "id_generator", None)
        if inner is not None and not isinstance(inner, TraceIds):  # other SDKs have none: there each attempt is a new trace
            found.id_generator = TraceIds(inner)  # type: ignore[attr-defined]
        self._known = found
        return found

    @contextmanager
    def sending(self, event: MessagesSending) -> Iterator[None]:
        messages, one = event.messages, event.count == 1
        links: list[Link] = []
        for each in () if one else messages:
            created = self.tracer.start_span(
                f"create {event.topic}", kind=SpanKind.PRODUCER, attributes=c.operation("create", "create", event.topic)
            )
            propagate.inject(each.headers, context=trace.set_span_in_context(created))
            created.end()
            links.append(Link(created.get_span_context()))
        kind = SpanKind.PRODUCER if one else SpanKind.CLIENT
        span = self.tracer.start_span(f"send {event.topic}", kind=kind, attributes=c.of_send(event), links=links[:_MOST_LINKS])
        for each in messages:
            if one:
                propagate.inject(each.headers, context=trace.set_span_in_context(span))
            if span.get_span_context().is_valid:  # else nobody traces here
                each.headers[TRACE] = LINK if each.wait > self._link_after else str(event.now // 1000)
        with _current(span):
            try:
                yield
            except BaseException as error:
                _failed(span, c.name_of(type(error)), error)
                raise
            span.set_attributes(c.of_sent(event))

    @contextmanager
    def handling(self, event: MessagesHandling) -> Iterator[None]:
        messages = event.messages
        where = origin(messages[0], self._link_after) if event.count == 1 else Origin(Context(), links_of(messages))
        token = _next.set(where.trace_id)
        try:
            span = self.tracer.start_span(
                f"process {event.topic}",
                context=where.context,
                kind=SpanKind.CONSUMER,
                attributes=c.of_process(event, messages),
                links=where.links,
            )
        finally:
            _next.reset(token)
        if (made := span.get_span_context()).is_valid:
            event.log_fields |= {"trace_id": f"{made.trace_id:032x}", "span_id": f"{made.span_id:016x}"}
        with _current(span, where.context):
            try:
                yield
                if (failure := c.failure(event, None)) is not None:
                    _failed(span, failure)
            except BaseException as error:
                if (failure := c.failure(event, type(error))) is not None:
                    _failed(span, failure, error)
                raise
            finally:
                span.set_attributes(c.outcome(event))


class SettleSpans:
    """A subscriber: a span for each call that has ended deliveries. It is made after the fact, so it has no length."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def ended(self, event: MessagesEnded) -> None:
        name = c.SETTLED[event.outcome]
        attributes = c.operation(name, "settle", event.topic) | {c.OUTCOME: event.outcome}
        messages = event.messages
        if event.count > 1:
            attributes[c.COUNT] = event.count
        else:
            attributes[c.MESSAGE_ID] = messages[0].id
        inside = event.count == 1 and trace.get_current_span().is_recording()  # of several, none is that of all
        links = links_of(messages)
        context = None if inside else Context()
        self._tracing.tracer.start_span(
            f"{name} {event.topic}", context=context, kind=SpanKind.CLIENT, attributes=attributes, links=links
        ).end()


@contextmanager
def _current(span: Span, context: Context | None = None) -> Iterator[None]:
    """The span, and its baggage if there is a context, until it ends."""
    with ExitStack() as stack:
        stack.callback(span.end)
        if context is not None:
            stack.enter_context(_attached(context))
        stack.enter_context(trace.use_span(span, record_exception=False, set_status_on_exception=False))
        yield


@contextmanager
def _attached(context: Context) -> Iterator[None]:
    token = contexts.attach(context)
    try:
        yield
    finally:
        contexts.detach(token)


def _failed(span: Span, kind: str, error: BaseException | None = None) -> None:
    span.set_attribute(c.ERROR, kind)
    if isinstance(error, BideError):  # its text may have a key, or a value of the body
        span.add_event("exception", {"exception.type": f"{type(error).__module__}.{type(error).__qualname__}"})
    elif error is not None:
        span.record_exception(error)
    span.set_status(StatusCode.ERROR, kind)
