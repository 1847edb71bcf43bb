"""What goes with a message from copy to copy, in a header of ours: what a delivery of it means, and what its end makes."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from bide.engines.base import Claimed, End, Ended, NewMessage, Stored
from bide.errors import BadOption

HEADER = "bide"
COUNT = "x-delivery-count"  # the broker's: how often this copy was delivered before
MOST = 100_000  # bytes of a label: all headers of a message go in one frame of the protocol, of 128 KiB
LONGEST_ERROR = 16_000  # characters
LATEST = 253_402_300_799_999  # ms: the last year that Python's dates have

# Anybody can write to a queue: what these types refuse was not sent by bide.
Word = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,128}\Z")]
Time = Annotated[int, Meta(ge=0, le=LATEST)]
Number = Annotated[int, Meta(ge=0, le=2**31)]
LEASE_ENDED = "The lease of its last attempt ended."


class Label(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A message without its body. Times are the engine's, in milliseconds."""

    id: Word
    topic: Word
    due: Time
    since: Time  # when it first fell due in this life
    most: Number = 3  # attempts
    used: Number = 0  # attempts, before this copy was made
    told: Number = 0  # deliveries, before this copy was made
    began: Time | None = None
    expires: int | None = None
    headers: Mapping[str, str] = {}
    error: str | None = None
    died: Time | None = None
    lost: Number = 0  # of the deliveries before, the last ones in a row that were lost with their channel

    def expired(self, now: int) -> bool:
        return self.expires is not None and self.expires <= now

    def again(self, due: int, used: int, told: int, began: int | None, lost: int = 0) -> "Label":
        """Of the copy that comes back after a delivery."""
        return replace(self, due=due, used=used, told=told, began=began, lost=lost)

    def buried(self, now: int, used: int, told: int, error: str | None) -> "Label":
        """Of the dead letter."""
        return replace(
            self, used=min(used, self.most), told=told, error=None if error is None else error[:LONGEST_ERROR], died=now
        )

    def revived(self, due: int) -> "Label":
        """Of a dead letter in its new life."""
        expires = None if self.expires is None else due + self.expires - self.since
        return replace(self, due=due, since=due, used=0, lost=0, began=None, expires=expires, error=None, died=None)

    def stored(self, body: bytes) -> Stored:
        """As a dead letter is shown."""
        return Stored(
            id=self.id,
            topic=self.topic,
            state="dead",
            due=self.due,
            attempt=self.used,
            max_attempts=self.most,
            key=None,
            level=1,
            body=body,
            headers=self.headers,
            last_error=self.error,
            lease_until=None,
            expires=self.expires,
        )


class LabelledDelivery(msgspec.Struct, frozen=True, gc=False):
    """A delivery of a message: its label and body, and how often this copy was delivered before."""

    label: Label
    body: bytes
    count: int
    known: int = 0  # of these, those that were no fault of the message

    @property
    def attempt(self) -> int:
        return self.label.used + self.count - self.known + 1

    @property
    def lost(self) -> int:
        """How many deliveries in a row were lost, and may have been the fault of the message."""
        return self.label.lost + self.count - self.known

    @property
    def told(self) -> int:
        return self.label.told + self.count + 1

    @property
    def token(self) -> str:
        return f"{self.told:010d}"

    def claimed(self) -> Claimed:
        label = self.label
        return Claimed(
            id=label.id,
            topic=label.topic,
            body=self.body,
            headers=label.headers,
            key=None,
            due=label.due,
            since=label.since,
            attempt=self.attempt,
            max_attempts=label.most,
            token=self.token,
            began=label.began,
        )


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Label)


def label_of(new: NewMessage, id: str, due: int) -> Label:
    """Of a message that is sent."""
    return Label(
        id=id,
        topic=new.topic,
        due=due,
        since=due,
        most=new.max_attempts,
        expires=None if new.expires_in is None else due + new.expires_in,
        headers=new.headers,
    )


def written(label: Label) -> str:
    text = _encoder.encode(label)
    if len(text) > MOST:
        raise BadOption(f"The message's headers are over {MOST:,} bytes, which RabbitMQ can't carry: put them into the body.")
    return text.decode()


def read(headers: Mapping[str, Any] | None, body: bytes) -> LabelledDelivery | None:
    """A delivery, by what the broker gave. None: somebody else has sent it."""
    try:
        label = _decoder.decode((headers or {})[HEADER])
    except (KeyError, TypeError, ValueError, RecursionError, msgspec.DecodeError):
        return None
    count = (headers or {}).get(COUNT)
    return LabelledDelivery(label, body, count if isinstance(count, int) and 0 <= count <= 2**31 else 0)


class DeliveryEnd(NamedTuple):
    """`label`: of the copy that is to be made before the delivery is acknowledged; None: there is none."""

    ended: Ended
    label: Label | None = None


def outcome(end: End, delivered: LabelledDelivery, now: int) -> DeliveryEnd:
    label = delivered.label
    if end.verdict == "done":
        return DeliveryEnd("done")
    most = end.attempts or label.most
    if end.verdict == "dead" or (end.verdict == "retry" and delivered.attempt >= most):
        return DeliveryEnd("dead", label.buried(now, delivered.attempt, delivered.told, end.error))
    due = label.due if end.verdict == "release" and not end.delay else now + end.delay
    if end.aside and label.expires is not None:
        due = min(due, label.expires - 1)
        if due <= now:
            return DeliveryEnd("expired")
    if label.expired(max(due, now)):
        return DeliveryEnd("expired")
    used = delivered.attempt if end.verdict == "retry" else delivered.attempt - 1
    lost = 0 if end.verdict == "retry" else delivered.lost  # a handler that could tell has not ended its process
    again = label.again(due, used, delivered.told, end.began or label.began, lost)
    return DeliveryEnd("scheduled", again if most == label.most else replace(again, most=most))


def lease_ended(delivered: LabelledDelivery, now: int, began: int | None = None) -> DeliveryEnd:
    """Nobody has told the end of this delivery in time. Its message comes back at once, if it may be tried again."""
    label = delivered.label
    if label.expired(now):
        return DeliveryEnd("expired")
    if delivered.attempt >= label.most:
        return DeliveryEnd("dead", label.buried(now, delivered.attempt, delivered.told, label.error or LEASE_ENDED))
    return DeliveryEnd(
        "scheduled", label.again(label.due, delivered.attempt, delivered.told, label.began or began, delivered.lost)
    )


def unused(delivered: LabelledDelivery) -> Label:
    """Of the copy of a message that arrived here and was not begun."""
    label = delivered.label
    return label.again(label.due, delivered.attempt - 1, delivered.told, label.began, delivered.lost)
