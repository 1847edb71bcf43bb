"""What the end of a delivery makes of its message: nothing, a copy that comes later, or a dead letter."""

from typing import NamedTuple

from msgspec.structs import replace

from bide.engines.base import End, Ended
from bide.engines.rabbitmq.label import Delivered, Label

LEASE_ENDED = "The lease of its last attempt ended."


class Outcome(NamedTuple):
    """`label`: of the copy that is to be made before the delivery is acknowledged; None: there is none."""

    ended: Ended
    label: Label | None = None


def outcome(end: End, delivered: Delivered, now: int) -> Outcome:
    label = delivered.label
    if end.verdict == "done":
        return Outcome("done")
    most = end.attempts or label.most
    if end.verdict == "dead" or (end.verdict == "retry" and delivered.attempt >= most):
        return Outcome("dead", label.buried(now, delivered.attempt, delivered.told, end.error))
    due = label.due if end.verdict == "release" and not end.delay else now + end.delay
    if end.aside and label.expires is not None:
        due = min(due, label.expires - 1)
        if due <= now:
            return Outcome("expired")
    if label.expired(max(due, now)):
        return Outcome("expired")
    used = delivered.attempt if end.verdict == "retry" else delivered.attempt - 1
    lost = 0 if end.verdict == "retry" else delivered.lost  # a handler that could tell has not ended its process
    again = label.again(due, used, delivered.told, end.began or label.began, lost)
    return Outcome("scheduled", again if most == label.most else replace(again, most=most))


def lease_ended(delivered: Delivered, now: int, began: int | None = None) -> Outcome:
    """Nobody has told the end of this delivery in time. Its message comes back at once, if it may be tried again."""
    label = delivered.label
    if label.expired(now):
        return Outcome("expired")
    if delivered.attempt >= label.most:
        return Outcome("dead", label.buried(now, delivered.attempt, delivered.told, label.error or LEASE_ENDED))
    return Outcome("scheduled", label.again(label.due, delivered.attempt, delivered.told, label.began or began, delivered.lost))


def unused(delivered: Delivered) -> Label:
    """Of the copy of a message that arrived here and was not begun."""
    label = delivered.label
    return label.again(label.due, delivered.attempt - 1, delivered.told, label.began, delivered.lost)
