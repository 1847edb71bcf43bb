"""Names of the semantic conventions for messaging, version 1.45, and names of bide's own; and what attributes say.

https://opentelemetry.io/docs/specs/semconv/messaging/ has the rules. They may still change ("Development"), so their version is
pinned here. No attribute has a key or a body.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from bide.clock import moment
from bide.queue import MessagePart, MessagesHandling, MessagesSending

SCOPE = "bide"
SCHEMA = "https://opentelemetry.io/schemas/1.45.0"

SYSTEM = "messaging.system"
OPERATION_NAME = "messaging.operation.name"
OPERATION_TYPE = "messaging.operation.type"
DESTINATION = "messaging.destination.name"
MESSAGE_ID = "messaging.message.id"
COUNT = "messaging.batch.message_count"
ERROR = "error.type"

DUE = "bide.due"  # when the message is due, or was: ISO 8601, in UTC
LATENESS = "bide.lateness"  # seconds from the due time to the delivery; of a batch, those of its latest message
ATTEMPT = "bide.attempt"
OUTCOME = "bide.outcome"  # of a send as in Sent.outcome, of a handler as in MessagesHandling.outcome, or "mixed" in a batch
TASK = "bide.task"

OPERATION_DURATION = "messaging.client.operation.duration"
SENT_MESSAGES = "messaging.client.sent.messages"
CONSUMED_MESSAGES = "messaging.client.consumed.messages"
PROCESS_DURATION = "messaging.process.duration"
DURATIONS = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10)  # seconds: what the conventions advise
LATE = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800)  # seconds of lateness

SETTLED = {"done": "ack", "retried": "retry", "released": "release", "dead": "bury", "expired": "expire", "lost": "lost"}
"""The name of the operation that has ended deliveries, by outcome."""

Attributes: TypeAlias = dict[str, str | int | float]


def operation(name: str, kind: str, topic: str) -> Attributes:
    """What all spans and measurements of one operation have. `kind`: create, send, receive, process or settle."""
    return {SYSTEM: "bide", OPERATION_NAME: name, OPERATION_TYPE: kind, DESTINATION: topic}


def of_send(event: MessagesSending) -> Attributes:
    """Before it is done."""
    found = operation("send", "send", event.topic)
    if event.count > 1:
        found[COUNT] = event.count
    return found


def of_sent(event: MessagesSending) -> Attributes:
    """What is known of a single message once it is sent."""
    if event.count > 1 or not event.sent:
        return {}
    [sent] = event.sent
    return {MESSAGE_ID: sent.id, DUE: instant(sent.due), OUTCOME: sent.outcome}


def of_process(event: MessagesHandling, messages: Sequence[MessagePart]) -> Attributes:
    """Before the handler is called."""
    found = operation("process", "process", event.topic) | {TASK: event.task}
    if late := [each.lateness for each in messages if each.lateness is not None]:
        found[LATENESS] = max(late)
    if len(messages) > 1:
        return found | {COUNT: len(messages)}
    [one] = messages
    return found | {MESSAGE_ID: one.id} | told(one)


def told(part: MessagePart) -> Attributes:
    """When a message was due, and which attempt this is."""
    found: Attributes = {}
    if part.due is not None:
        found[DUE] = instant(part.due)
    if part.attempt is not None:
        found[ATTEMPT] = part.attempt
    return found


def outcome(event: MessagesHandling) -> Attributes:
    """What is to become of messages whose handler has ended."""
    if event.outcome is not None:
        return {OUTCOME: event.outcome}
    return {OUTCOME: "mixed"} if any(event.outcomes) else {}


def failure(event: MessagesHandling, kind: type[BaseException] | None) -> str | None:
    """The type of the error by which a handler has failed; None for one that has not. `kind`: of what it has raised.

    A handler that is stopped with its worker, or asks to be called later, has not failed.
    """
    if event.outcome == "lost":
        return "LeaseLost"
    return None if kind is None or event.outcome in ("done", "released") else name_of(kind)


def name_of(kind: type[BaseException]) -> str:
    """As the conventions have it: with its module, but for what comes with Python."""
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def instant(due: int) -> str:
    """The time of the engine's clock."""
    return moment(due).isoformat(timespec="milliseconds")


def plain(headers: Mapping[str, str]) -> dict[str, str]:
    """What propagators read from."""
    return dict(headers)
