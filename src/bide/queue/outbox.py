"""A message on its way: kept in the caller's database until the queue has it, and what a cancel has made of it there."""

import os
from collections import deque
from collections.abc import Hashable, Sequence
from typing import NamedTuple, TypeAlias

import msgspec
from msgspec.structs import replace

from bide.engines.base import Claimed, NewMessage, Ref, Stored
from bide.engines.guard.hooks import BadHook
from bide.engines.results import Kept
from bide.errors import (
    BadBody,
    BadMessage,
    BideError,
    ConfigError,
    ConfirmTimeout,
    OutcomeUnknown,
    QueueFull,
    Unavailable,
    Unsupported,
)
from bide.queue.results import UNDONE_MS
from bide.types import CancelResult, Sent

TOPIC = "bide.outbox"
PREFIX = "outbox-"  # of the ids that senders are told: a message gets its own from the queue's engine, which says where it is
KEEP = "bide-keep"  # the header of what waits in an outbox, for how many ms its result is to be kept
NOBODY = "bide.outbox.nobody"  # a topic without messages
NEVER = 2_000_000_000  # attempts: a message is not given up because its queue is away

_encode = msgspec.msgpack.Encoder(enc_hook=bytes).encode  # a body may be of a class of its own
_decode = msgspec.msgpack.Decoder(NewMessage).decode


class Name(msgspec.Struct, frozen=True):
    """What a message is called in the queue."""

    topic: str
    key: str | None = None


_decode_name = msgspec.msgpack.Decoder(Name).decode


def kept(new: NewMessage, keep: int | None, *, once: bool) -> NewMessage:
    """What is put into the outbox for a message. `once`: it gets an operation, as an id may also be one of another outbox."""
    if once and new.operation is None:
        new = replace(new, operation=PREFIX + os.urandom(12).hex())
    return NewMessage(TOPIC, _encode(new), max_attempts=NEVER, headers={} if keep is None else {KEEP: str(keep)})


def keep_of(claimed: Claimed) -> int | None:
    """For how many ms the result of a message is to be kept."""
    told = claimed.headers.get(KEEP, "")
    return int(told) if told.isdecimal() else None


def concerns(which: Ref) -> bool:
    """Whether a message that is meant may be in an outbox: by its key, or by the id that its sender was told."""
    return which.id is None or which.id.startswith(PREFIX)


def name_of(body: bytes) -> Name | None:
    """Of what waits in an outbox; None if it is no message."""
    try:
        return _decode_name(body)
    except msgspec.MsgspecError:
        return None


def name(which: Ref) -> Name:
    return Name(which.topic or "", which.key)


def private(id: str) -> Ref:
    """In the outbox, of an id that a sender was told."""
    return Ref(id.removeprefix(PREFIX))


def meant(which: Ref, found: Stored) -> Ref:
    """One that has a key is named by it: what was sent before with its key would go on in its place."""
    name = name_of(found.body)
    if found.state == "dead" or name is None or name.key is None:
        return which
    return Ref(topic=name.topic, key=name.key)


def missing(ids: Sequence[str]) -> Unsupported:
    """What to say of ids that nothing in the outbox has."""
    others = len(ids) - 1
    if not others:
        return Unsupported(
            f"{ids[0]} is not in the outbox: its transaction is not committed or was rolled back, or the message was "
            "handed on and has another id in the queue. Give messages a key, and name them by it."
        )
    return Unsupported(
        f"{ids[0]} and {others:,} {'other' if others == 1 else 'others'} are not in the outbox: their transactions are not "
        "committed or were rolled back, or the messages were handed on and have other ids in the queue. Give messages a key, "
        "and name them by it."
    )


def claimed_of(each: Stored) -> Claimed:
    """What waits, as if it was claimed: by somebody who hands it on in place of a relay."""
    return Claimed(each.id, each.topic, each.body, each.headers, each.key, each.due, _sent_at(each), 1, NEVER, "")


def shown(each: Stored, now: int) -> Stored | None:
    """The message itself, as the queue would show it; None if it has expired or can't be read."""
    try:
        new = _opened(each.id, each.body)
    except (BadBody, Unsupported):
        return None
    due = _due(new, _sent_at(each))
    expires = None if new.expires_in is None else due + new.expires_in
    if expires is not None and expires <= now:
        return None
    return Stored(
        PREFIX + each.id,
        new.topic,
        "scheduled" if due > now else "ready",
        due,
        0,
        new.max_attempts,
        new.key,
        new.level,
        bytes(new.body),
        new.headers,
        None,
        None,
        expires,
    )


def handed_on_as(claimed: Claimed, sent: Sent, keep: int, now: int) -> Kept:
    """That a message has another id now, kept as if it was the result of the one in the outbox."""
    return Kept(PREFIX + claimed.id, max(0, sent.due - now) + keep + UNDONE_MS, sent.id.encode())


def handed_on(claimed: Claimed, now: int, *, once: bool = True) -> NewMessage | None:
    """The message itself, or None if it has expired. However often it is handed on, it is sent once, where the queue's engine
    remembers operations: else not `once`.

    `now`: by the clock of the outbox. What is left of its delay and of its life goes on by that of the queue. Raises BadBody if
    there is no message in it, and Unsupported if it is one of a newer release.
    """
    new = _opened(claimed.id, claimed.body)
    due, life = _due(new, claimed.since), new.expires_in
    if life is not None:
        life -= max(0, now - due)
        if life <= 0:
            return None
    operation = new.operation
    if operation is None or operation.startswith(PREFIX):  # ours; the release before stores none
        operation = (operation or PREFIX + claimed.id) if once else None
    return replace(new, delay=max(0, due - now) if new.at is None else 0, expires_in=life, operation=operation)


def _opened(id: str, body: bytes) -> NewMessage:
    """What was sent."""
    try:
        return _decode(body)
    except msgspec.MsgspecError as error:
        if _has_all(body):
            raise Unsupported(f"Message {id} was sent by a newer release of bide, which has to hand it on") from None
        raise BadBody(f"Message {id} is none that was sent through the outbox: {error}") from error


def _sent_at(each: Stored) -> int:
    """When it was put into the outbox: it was due at once, and a relay may have put it off since then."""
    return each.due if each.since is None else each.since


def _due(new: NewMessage, sent: int) -> int:
    """When it is due, by the clock of the outbox."""
    return sent + new.delay if new.at is None else max(new.at, sent)


def _has_all(body: bytes) -> bool:
    """Whether it has what every message has, so that only more can be what makes it unreadable."""
    try:
        fields = msgspec.msgpack.decode(body)
    except msgspec.MsgspecError:
        return False
    return isinstance(fields, dict) and not {"topic", "body"}.difference(fields)


def answers(messages: Sequence[NewMessage], sent: Sequence[Sent]) -> list[Sent]:
    """What the sender is told: that it is in the outbox. The message gets its own id when it is handed on."""
    return [Sent(PREFIX + each.id, new.topic, _due(new, each.due), "created") for new, each in zip(messages, sent, strict=True)]


def check(*, joins: bool, shown: str) -> None:
    """Refuse an outbox whose engine can't join a transaction."""
    if not joins:
        raise ConfigError(
            f"outbox={shown} can't join a transaction, which is what an outbox is for: give the URL of the SQLite file or the "
            "PostgreSQL database that your application writes to."
        )


Brought: TypeAlias = Sent | BideError | None  # of one that is handed on: the queue's answer or error, or that it has expired
Failures: TypeAlias = dict[Hashable, list[BideError]]  # of each part of the queue, in one call of the user
Told: TypeAlias = CancelResult | BideError
ORDER = (CancelResult.CANCELLED, CancelResult.RUNNING, CancelResult.DEAD)


class Fate:
    """What became of one message."""

    def __init__(self, result: CancelResult | None = None, error: BideError | None = None) -> None:
        """`error`: why the result is not known, or not confirmed."""
        self.result: CancelResult | None = result
        self.error: BideError | None = error
        self._asked = False

    @property
    def final(self) -> bool:
        """Whether nothing is left of the message that could be delivered."""
        return self.result is not None and self.result is not CancelResult.RUNNING

    def told(self) -> Told:
        """It is cancelled once, however often it is named."""
        asked, self._asked, error, result = self._asked, True, self.error, self.result
        if result is CancelResult.CANCELLED and asked:
            return CancelResult.GONE
        if error is None:
            return CancelResult.GONE if result is None else result
        if result is None and not isinstance(error, OutcomeUnknown):
            return error
        kind = ConfirmTimeout if isinstance(error, ConfirmTimeout) else OutcomeUnknown
        told = kind(str(error), done=[] if result is None else [result])  # its own answers are of others, too
        told.__cause__ = error.__cause__ if isinstance(error, OutcomeUnknown) else error
        return told


class Sought:
    """One message, or all that wait with a key."""

    def __init__(self, which: Ref) -> None:
        self.which: Ref = which
        self.waiting: deque[Withdrawn] = deque()  # in the order in which they were sent
        self.fates: dict[str, Fate] = {}  # by their ids
        self.there: Fate = Fate()  # of what the queue has with the key
        self.failed: BideError | None = None  # the queue's: what is left of it is not handed on

    @property
    def keyed(self) -> bool:
        return self.which.id is None

    def add(self, stored: Stored) -> None:
        if stored.id not in self.fates:
            self.fates[stored.id] = Fate()
            self.waiting.append(Withdrawn(self, stored, self.fates[stored.id]))

    def told(self) -> Told:
        """Of all of them. What is pending decides, as in the queue, where one with its key may run."""
        fates = [*self.fates.values(), self.there]
        results = [fate.result for fate in fates]
        best = next((each for each in ORDER if each in results), CancelResult.GONE)
        lost = [fate.error for fate in fates if fate.error is not None and fate.result is None]
        if lost:
            return Fate(None, OutcomeUnknown(str(lost[0])) if best is CancelResult.CANCELLED else lost[0]).told()
        unsure = [fate.error for fate in fates if fate.error is not None]
        unsure.sort(key=lambda each: isinstance(each, ConfirmTimeout))
        return Fate(best, unsure[0] if unsure else None).told()


class Withdrawn(NamedTuple):
    """One of the messages that a name means."""

    named: Sought
    stored: Stored
    fate: Fate

    @property
    def new(self) -> bool:
        """Whether no relay ever had it, so that the queue does not have it."""
        return not self.stored.attempt

    def fail(self, error: BideError) -> None:
        """In the queue. If others of that name may fail alike, they are not tried."""
        self.fate.error = error
        if not is_refused(error):
            self.named.failed = self.named.failed or error

    def leave(self, result: Told) -> None:
        """The queue was not asked. `result`: of taking it out of the outbox."""
        if self.fate.error is not None:
            said = "It is cancelled in the outbox. " if result is CancelResult.CANCELLED else ""
            if self.named.keyed:
                said += "Whether the queue has it, or another message with its key, is not known: cancel again by the key."
            elif result in (CancelResult.CANCELLED, CancelResult.GONE):
                said += "Whether the queue has it is not known."
            else:
                said += "Whether the queue has it is not known, so it stays in the outbox: cancel it again by its id."
            self.fate.error = _because(said, "queue", self.fate.error)

    def end(self, result: Told) -> None:
        """It is done in the queue. `result`: of taking it out of the outbox."""
        why = OutcomeUnknown("A relay has it.") if result is CancelResult.RUNNING else result
        if isinstance(why, BideError) and self.fate.result is CancelResult.CANCELLED:
            text = "It is cancelled in the queue, but it could not be taken out of the outbox: cancel it again."
            self.fate.error = _because(text, "outbox", why)


def reason(error: BideError) -> BideError:
    """Why a part of a batch has failed, if others were done. One that is refused may take others along."""
    cause = error.__cause__
    if isinstance(error, OutcomeUnknown) and (
        isinstance(cause, BadMessage) or (error.answers and isinstance(cause, QueueFull | Unavailable))
    ):
        return cause
    return error


def is_refused(error: BideError) -> bool:
    """Whether the queue can't take the message from this program; one that a hook has spoilt may be there."""
    return isinstance(error, BadMessage | Unsupported) and not isinstance(error, BadHook)


def is_untouched(error: BideError) -> bool:
    """Whether the queue has taken nothing. It may have the message from a relay."""
    return is_refused(error) or isinstance(error, BadHook | QueueFull | Unavailable)


def _because(text: str, of: str, error: BideError) -> OutcomeUnknown:
    told = OutcomeUnknown(f"{text} The {of} says: {error}")
    told.__cause__ = error
    return told
