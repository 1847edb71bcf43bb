"""Sentry: one scope a message, its errors, and its trace. It needs sentry-sdk: `pip install bide[sentry]`.

sentry_sdk.init(dsn="…", integrations=[BideIntegration()])
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

import sentry_sdk
from sentry_sdk.integrations import Integration
from sentry_sdk.scope import Scope, add_global_event_processor
from sentry_sdk.utils import event_from_exception

from bide.queue import Bury, MessagesHandling, MessagesSending, Retry, Snooze, Subscription, subscribe
from bide.queue.tasks.outcome import decisive

if TYPE_CHECKING:
    from sentry_sdk._types import Event, Hint

ASKED = (Bury, Retry, Snooze)  # what a handler raises to say what is to become of its message
_TOLD = "_bide_told_sentry"  # of an error: there is an event for it


class BideIntegration(Integration):
    """For `sentry_sdk.init(integrations=[BideIntegration()])`, in each process that sends messages or runs a worker.

    Each message is handled in an isolation scope and a transaction of its own. The transaction's name is the topic, and it
    continues the trace of the send. The scope has the tags bide.topic, bide.task, bide.attempt and bide.message_id. An error of
    a handler is one event; Retry, Snooze and Bury are none. No key and no body is sent to Sentry, unless an error's text or the
    variables of a frame have it: see `include_local_variables` of Sentry.
    """

    identifier: str = "bide"
    origin: str = f"auto.queue.{identifier}"
    subscription: ClassVar[Subscription | None] = None

    @staticmethod
    def setup_once() -> None:
        """Called by Sentry, once for the process."""
        BideIntegration.subscription = subscribe(_Subscriber())
        add_global_event_processor(_once)


class _Subscriber:
    """Does nothing while the integration is off."""

    @contextmanager
    def sending(self, event: MessagesSending) -> Iterator[None]:
        if _is_off() or sentry_sdk.get_current_span() is None:
            _add_trace(event)
            yield
            return
        with sentry_sdk.start_span(op="queue.publish", name=event.topic, origin=BideIntegration.origin) as span:
            span.set_data("messaging.system", "bide")
            span.set_data("messaging.destination.name", event.topic)
            _add_trace(event)
            yield
            if event.sent and event.count == 1:
                span.set_data("messaging.message.id", event.sent[0].id)

    @contextmanager
    def handling(self, event: MessagesHandling) -> Iterator[None]:
        """What is raised within goes on to the worker whatever this does with it."""
        if _is_off():
            yield
            return
        first, alone = event.messages[0], event.count == 1
        with sentry_sdk.isolation_scope() as scope:
            _describe(scope, event)
            transaction = sentry_sdk.continue_trace(
                dict(first.headers) if alone else {},  # a batch has no trace that is that of all
                op="queue.process",
                name=event.topic,
                source="task",
                origin=BideIntegration.origin,
            )
            with sentry_sdk.start_transaction(transaction) as span:
                span.set_data("messaging.system", "bide")
                span.set_data("messaging.destination.name", event.topic)
                if alone:
                    span.set_data("messaging.message.id", first.id)
                    span.set_data("messaging.message.retry.count", (first.attempt or 1) - 1)
                    span.set_data("messaging.message.receive.latency", round((first.lateness or 0.0) * 1000))
                try:
                    yield
                    span.set_status("ok")
                except BaseException as error:
                    span.set_status("internal_error" if _tell(event, error) else "aborted")


def _is_off() -> bool:
    return sentry_sdk.get_client().get_integration(BideIntegration) is None


def _add_trace(event: MessagesSending) -> None:
    """That of the current span, or of the scope."""
    if not _is_off():
        told = dict(sentry_sdk.get_current_scope().iter_trace_propagation_headers())
        for each in event.messages:
            each.headers.update({name: text for name, text in told.items() if name not in each.headers})


def _describe(scope: Scope, event: MessagesHandling) -> None:
    scope.clear_breadcrumbs()
    scope.set_transaction_name(event.topic, source="task")
    scope.set_tag("bide.topic", event.topic)
    scope.set_tag("bide.task", event.task)
    if event.count > 1:
        scope.set_tag("bide.batch", event.count)
        return
    [one] = event.messages
    scope.set_tag("bide.attempt", one.attempt)
    scope.set_tag("bide.message_id", one.id)


def _tell(event: MessagesHandling, error: BaseException) -> bool:
    """Whether what a handler has raised is an error, which is told then."""
    if event.outcome in ("released", "lost") or isinstance(error, KeyboardInterrupt | GeneratorExit):
        return False
    if isinstance(decisive(error), ASKED):
        return False
    options = sentry_sdk.get_client().options
    told, hint = event_from_exception(error, client_options=options, mechanism={"type": "bide", "handled": False})
    for each in told["exception"]["values"]:
        if (each.get("module") or "").partition(".")[0] in ("bide", "msgspec"):  # it may have a key, or a value of the body
            each["value"] = "The worker's log has the text."
        for frame in (each.get("stacktrace") or {}).get("frames", ()):
            if (frame.get("module") or "").partition(".")[0] == "bide":
                frame.pop("vars", None)  # where keys and bodies are
    sentry_sdk.capture_event(told, hint=hint)
    with suppress(Exception):  # of an error that takes no attributes
        setattr(error, _TOLD, True)
    return True


def _once(event: "Event", hint: "Hint") -> "Event | None":
    """The worker logs the same error, which Sentry's integration of `logging` would make a second event of."""
    record: Any = hint.get("log_record")
    raised = record.exc_info[1] if record is not None and record.exc_info else None
    return None if getattr(raised, _TOLD, False) else event
