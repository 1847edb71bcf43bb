"""What deliveries in sync and async have in common, which one a running handler is for, and what is kept of failed attempts."""

import asyncio
import gc
import os
import time
import traceback
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from datetime import datetime
from types import TracebackType
from typing import Any, Protocol, TypeVar

import msgspec

from bide.clock import epoch_ms
from bide.core.codec import JSON
from bide.core.options import MAX_ATTEMPTS
from bide.engines.base import Claimed, End, Hold, Verdict
from bide.engines.lots import Noted
from bide.errors import BadOption, ConfigError
from bide.ids import process_name
from bide.raised import presentable
from bide.types import Attempt

FRAMES = 20  # of a traceback, the innermost ones
LENGTH = 4_096  # bytes of a traceback, its end
_LINE = 500  # characters of a line: an error's text may be long
_LONG = 2 * LENGTH  # characters of the beginning and of the end of an error's text that are looked at
_WORTH = 200  # bytes of a record that are not worth compressing
_MOST = 65_536  # bytes that a record is unpacked to
_ENDED = "Its lease ended: its worker died, froze or took too long."
PLANNED = "bide-planned"  # the header with the instant of a schedule
ATTEMPTS = "bide-attempts"  # the header of a message whose sender has asked for as many attempts as others have by default
DEPENDS = "bide-depends-on"  # the header with the ids of messages that a message waits for
SHARE = 100  # a garbage collection is followed by this many times its own length without one


class _Record(msgspec.Struct, omit_defaults=True):
    """One with no more than its first two fields was made by an engine."""

    attempt: int
    began: int
    worker: str | None = None
    error: str | None = None
    traceback: str | None = None


_decode = msgspec.json.Decoder(_Record).decode


def record_of(attempt: int, began: int, error: str | None, raised: BaseException | None = None, *, here: bool = True) -> bytes:
    """A record of an attempt, of this process or of one that is not known: JSON, compressed where that makes it shorter."""
    told = None if raised is None else traceback_text(raised)
    plain = msgspec.json.encode(_Record(attempt, began, process_name(os.getpid()) if here else None, error, told))
    return plain if len(plain) < _WORTH else zlib.compress(plain)


class Raised:
    """What attempts failed with. Messages that failed together and alike share their record, since a traceback takes time."""

    __slots__ = ("_error", "_records")

    def __init__(self, error: BaseException | None) -> None:
        self._error = error
        self._records: dict[tuple[int, int, str | None], bytes] = {}

    def record(self, attempt: int, began: int, error: str | None) -> bytes:
        """The record of an attempt of this process."""
        alike = attempt, began, error
        if alike not in self._records:
            self._records[alike] = record_of(attempt, began, error, self._error)
        return self._records[alike]


def attempts_of(records: Sequence[bytes]) -> Sequence[Attempt]:
    """A record that can't be read is left out."""
    return tuple(attempt for each in records if (attempt := _attempt(each)) is not None)


def _attempt(record: bytes) -> Attempt | None:
    try:
        if record[:1] != b"{":
            record = zlib.decompressobj().decompress(record, _MOST)
        told = _decode(record)
    except (zlib.error, msgspec.MsgspecError):
        return None
    error = _ENDED if told.worker is told.error is None else told.error
    return Attempt(told.attempt, told.began, told.worker, error, told.traceback)


def traceback_text(raised: BaseException) -> str | None:
    """The innermost frames, and at most so many bytes; None where there are none, or they can't be shown."""
    if raised.__traceback__ is None:
        return None
    try:
        own = _outside(raised.__traceback__)
        shown = presentable(raised)
        told = traceback.TracebackException(type(shown), shown, own, limit=-FRAMES, compact=True)
        return _end_of(_lines(told))
    except Exception:  # of somebody else's error, by its __str__ or __cause__, or of a source file
        return None


def _lines(told: traceback.TracebackException) -> Iterator[str]:
    for text in told.format():
        whole = text if len(text) <= _LONG else f"{text[:_LONG]}…\n{text[-_LONG:]}"
        for line in whole.splitlines():
            yield line if len(line) <= _LINE else f"{line[:_LINE]}…"


def _end_of(lines: Iterator[str]) -> str:
    kept: list[str] = []
    room = LENGTH
    for line in reversed(deque(lines, LENGTH + 1)):  # each of them takes a byte at least
        room -= len(line.encode("utf-8", "replace")) + 1
        if room < 0:
            kept.append("…")
            break
        kept.append(line)
    return "\n".join(reversed(kept)).encode("utf-8", "replace").decode()


def _outside(trace: TracebackType) -> TracebackType:
    """From where the worker calls the handler on: how it came there is the same for all of them."""
    inner: TracebackType | None = trace
    while inner is not None and inner.tb_frame.f_globals.get("__name__", "").partition(".")[0] == "bide":
        inner = inner.tb_next
    return trace if inner is None else inner


STOPS = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""Not failures of the work: somebody stopped it from outside."""

UNREAD = object()
"""In place of a body that nobody has asked for yet."""


class Internals:
    """What bide itself knows of a delivery. An async and a sync delivery of the same message share it.

    For most, what is written here first stays as it is: so it takes no time to set it.
    """

    ended: bool = False  # by one of the verbs, or because its lease was seen to be lost
    verdict: Verdict | None = None  # with which it was last tried to end it
    ending: bool = False  # one of the verbs is on its way, and its answer will tell if the lease was lost
    expired: bool = False  # its handler is told that it should stop
    deadline: float | None = None  # in a handler: when its timeout has passed, by time.monotonic()
    kept: Callable[[Hold, int], int] | None = None  # of a lease that is renewed: for how long it is to be extended
    at_work: float | None = None  # since when, by time.monotonic(), if somebody listens to events
    returned: Any = None  # by its handler, of tasks that keep it
    on_end: Callable[[], object] | None = None  # called once, when it ends
    on_drop: Callable[[], object] | None = None  # called if it is dropped without being ended, in any thread: it takes no lock

    def __init__(self, claimed: Claimed, body: Any, now: int, longest: int) -> None:
        """`body`: UNREAD to decode it when somebody asks. `longest`: the longest delay that the engine takes."""
        self.claimed: Claimed = claimed
        self.now: int = now  # the engine's time when it was handed out
        self.most: int = claimed.max_attempts  # or as many as its task gives it
        self.hold: Hold = Hold(claimed.topic, claimed.id, claimed.token)  # as an engine identifies the delivery
        self._body = body
        self._longest = longest

    @property
    def body(self) -> Any:
        if self._body is UNREAD:
            self._body = JSON.decode(self.claimed.body)
        return self._body

    @property
    def tried_ms(self) -> int:
        """Milliseconds from the message's first attempt to this delivery; 0 in the first. Releases do not change it."""
        return 0 if self.claimed.began is None else self.now - self.claimed.began

    def end(
        self,
        verdict: Verdict,
        delay: int = 0,
        error: str | None = None,
        aside: bool = False,
        called: bool = True,
        anew: bool = False,
        *,
        raised: Raised | None = None,
    ) -> End:
        """What an engine takes to end this delivery; of one that failed, with a record of the attempt.

        A delay that is too long for the engine becomes its longest: what a handler has decided must not fail now.
        """
        claimed = self.claimed
        if verdict == "retry" and claimed.attempt >= self.most:  # the engine may know of more
            verdict = "dead"
        self.verdict = verdict
        noted = None if self.at_work is None else Noted(claimed, self.now, time.monotonic() - self.at_work)
        if verdict == "done":
            return End(claimed.topic, claimed.id, claimed.token, verdict, noted=noted)
        delay = min(delay, self._longest)
        began = trace = None
        put_off = verdict == "release" and delay and called and not aside
        if verdict == "retry" or put_off:  # else it is as if it had not been received
            began = self.now if claimed.began is None or anew else claimed.began
        if verdict in ("retry", "dead"):
            trace = (raised or Raised(None)).record(claimed.attempt, self.now, error)
        attempts = self.most if verdict == "retry" and self.most > claimed.max_attempts else None
        return End(claimed.topic, claimed.id, claimed.token, verdict, delay, error, aside, began, trace, attempts, noted)

    def mark_ended(self) -> None:
        """Mark the delivery as ended or lost, so that its lease is no longer renewed."""
        self.ended = True
        on_end, self.on_end, self.on_drop = self.on_end, None, None
        if on_end is not None:
            on_end()


class _Delivery(Protocol):
    _internals: Internals


def internals(delivery: _Delivery) -> Internals:
    """What users do not see of their AsyncDelivery or Delivery."""
    return delivery._internals


def all_internals(deliveries: Iterable[_Delivery], verb: str) -> list[Internals]:
    """The same of many that a user gave to a verb. What is no delivery is refused."""
    found = list(deliveries)
    for each in found:
        if not isinstance(getattr(each, "_internals", None), Internals):
            raise BadOption(f"{verb} takes deliveries, as receive() gives them, and one of these is a {type(each).__name__}.")
    return [each._internals for each in found]


def attempts_left(attempts: int, made: int, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str]]:
    """Of a message that is sent once more, and its headers: a 3 that is left of another number counts as asked for."""
    left = max(1, attempts - made)
    return left, headers if left != MAX_ATTEMPTS or left == attempts else {**headers, ATTEMPTS: str(left)}


running: ContextVar[Callable[[], Any]] = ContextVar("bide_present")
"""Gives the delivery in the handler's colour, or those of a batch."""

D = TypeVar("D")


class Read(msgspec.Struct, frozen=True, gc=False):
    """What a claim has brought and could be read."""

    messages: Sequence[Claimed]
    arguments: Sequence[dict[str, Any] | None]  # of their handlers, where these were read from JSON
    bodies: Sequence[Any]  # UNREAD there
    now: int  # the engine's time, when it handed them out
    at_work: float | None  # since when, by time.monotonic(), if somebody listens to events


class Together(list[D]):
    """The deliveries of a batch. To those who call handlers they are as one."""


def planned_of(headers: Mapping[str, str]) -> int | None:
    """The instant that a schedule has planned a message for, in milliseconds; None for any other message."""
    text = headers.get(PLANNED)
    if text is None:
        return None
    try:
        return epoch_ms(datetime.fromisoformat(text))
    except (ValueError, TypeError, OverflowError):
        return None


def depends_on(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The ids of the messages that a message waits for, or has waited for."""
    text = headers.get(DEPENDS)
    return tuple(text.split(",")) if text else ()


class Cycles:
    """Deliveries in reference cycles hold their places until the garbage collector runs, and an idle process has none."""

    def __init__(self) -> None:
        self._next = 0.0

    def collect(self) -> None:
        """Run the garbage collector, unless too much time would go into it."""
        began = time.monotonic()
        if began >= self._next:
            gc.collect()
            ended = time.monotonic()
            self._next = ended + (ended - began) * SHARE


def sender(topic: str, key: str) -> str | None:
    """The id of the message that is being handled here, if this is its own key."""
    present = running.get(None)
    if present is None:
        return None
    delivery = present()
    if type(delivery) is Together:
        return next((each.id for each in delivery if (each.topic, each.key) == (topic, key)), None)
    return delivery.id if delivery is not None and (delivery.topic, delivery.key) == (topic, key) else None


def noting(function: Callable[..., Any], *, is_async: bool) -> Callable[..., Any]:
    """A handler that leaves what it returned at its delivery, also where middleware around it returns nothing."""

    async def noted_async(**arguments: Any) -> Any:
        delivery = running.get()()
        value = internals(delivery).returned = await function(**arguments)
        return value

    def noted(**arguments: Any) -> Any:
        delivery = running.get()()
        value = internals(delivery).returned = function(**arguments)
        return value

    return noted_async if is_async else noted


def current() -> Any:
    """Return the delivery that the running handler is for: an AsyncDelivery in an async handler, a Delivery in a sync one.

    It has the id, key, headers, attempt and lateness, and says whether the handler should stop (`expired`). You can extend its
    lease, or end it early. Raises ConfigError outside a handler.
    """
    delivery = _present("current()")()
    if type(delivery) is Together:
        raise ConfigError("This handler has a batch of messages, and current() is for one: current_batch() gives them all.")
    return delivery


def current_batch() -> Any:
    """Return the deliveries that the running handler is for, in the order of its list: AsyncDelivery objects in an async
    handler, Delivery objects in a sync one. A handler without `batch=` gets a list of one.

    End them together, in your own transaction too: `queue.ack_many(current_batch(), connection=…)`. Raises ConfigError outside
    a handler.
    """
    found = _present("current_batch()")()
    return list(found) if type(found) is Together else [found]


def _present(name: str) -> Callable[[], Any]:
    try:
        return running.get()
    except LookupError:
        raise ConfigError(f"{name} is for handlers: no message is being handled here.") from None
