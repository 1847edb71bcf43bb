"""A message on its way: kept in the caller's database until it is handed to the queue's own engine."""

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from bide.engines.base import Claimed, NewMessage
from bide.errors import ConfigError
from bide.types import Sent

TOPIC = "bide.outbox"
NEVER = 1_000_000  # attempts: a message is not given up because its queue is away

_encode = msgspec.msgpack.Encoder(enc_hook=bytes).encode  # a body may be of a class of its own
_decode = msgspec.msgpack.Decoder(NewMessage).decode


def kept(new: NewMessage) -> NewMessage:
    """What is put into the outbox for a message."""
    return NewMessage(TOPIC, _encode(new), max_attempts=NEVER)


def handed_on(claimed: Claimed) -> NewMessage:
    """The message itself. Its delay counts from when it was sent, and however often it is handed on, it is sent once."""
    new = _decode(claimed.body)
    at = claimed.since + new.delay if new.at is None and new.delay else new.at
    return replace(new, delay=0, at=at, operation=new.operation or f"outbox-{claimed.id}")


def answers(messages: Sequence[NewMessage], sent: Sequence[Sent]) -> list[Sent]:
    """What the sender is told: that it is in the outbox. The message gets its own id when it is handed on."""
    return [
        Sent(f"outbox-{each.id}", new.topic, each.due + new.delay if new.at is None else max(new.at, each.due), "created")
        for new, each in zip(messages, sent, strict=True)
    ]


def check(*, joins: bool, shown: str) -> None:
    """Refuse an outbox whose engine can't join a transaction."""
    if not joins:
        raise ConfigError(
            f"outbox={shown} can't join a transaction, which is what an outbox is for: give the URL of the SQLite file or the "
            "PostgreSQL database that your application writes to."
        )
