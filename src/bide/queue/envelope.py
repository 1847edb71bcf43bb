"""What users hand in, checked and turned into what engines take. Nothing is sent from here."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from msgspec.structs import replace

from bide.core import options
from bide.core.codec import Codec, Encoded, Json, decode, encode
from bide.core.key_rules import listed
from bide.core.send_options import CARRIED
from bide.core.times import bounded_instant_ms, duration_ms, life_ms
from bide.engines.base import MAX_BATCH, Move, NewMessage, Ref, Stored
from bide.errors import BadMessage, BadOption, BadTime, TooLarge
from bide.ids import worker_of
from bide.queue.deliveries import ATTEMPTS, DEPENDS, attempts_of, sender
from bide.queue.topic_rules import shorter
from bide.types import Duration, IfExists, Info, Outgoing, Priority, Sent

DEADLINE = "1d"  # unless a send says otherwise


def id_of(message: str | Sent) -> str:
    return message.id if isinstance(message, Sent) else options.text(message, "message", 128)


def refuse_times(depends_on: object, delay: Duration | None, at: datetime | None, if_exists: IfExists) -> None:
    """Refuse what says when a message is due that waits for others."""
    if depends_on is None:
        raise BadOption("deadline= belongs to depends_on=: without it, say when the message is due with delay= or at=.")
    if delay is not None or at is not None:
        raise BadTime("depends_on= says when the message is due, and deadline= when at the latest: leave delay= and at= out.")
    if if_exists not in ("keep", "error"):
        raise BadOption(f"depends_on= goes with if_exists='keep' or 'error': with {if_exists!r}, another message would wait.")


def with_dependencies(headers: Mapping[str, str] | None, given: Iterable[str | Sent]) -> Mapping[str, str]:
    """The headers, which were checked, and those that the message waits for, each once."""
    if isinstance(given, str | Sent) or not isinstance(given, Iterable):
        raise BadOption(f"depends_on is a {type(given).__name__}. Give a list of what was sent, or of ids.")
    each: object
    for each in (given := tuple(given)):
        if not isinstance(each, str | Sent):
            raise BadOption(f"depends_on holds a {type(each).__name__}. Give what send returned, or ids.")
    ids = dict.fromkeys(id_of(each) for each in given)
    if not 1 <= len(ids) <= MAX_BATCH:
        raise BadOption(f"depends_on names {len(ids):,} messages. Give 1 to {MAX_BATCH:,}; these may depend on others.")
    if any("," in each for each in ids):
        raise BadOption("depends_on has an id with a comma, which no message has.")
    return {**(headers or {}), DEPENDS: ",".join(ids)}


def check_known(ids: Sequence[str], known: Iterable[object]) -> None:
    """Refuse what nobody would tell of."""
    unknown = [id for id, found in zip(ids, known, strict=True) if found is None]
    if unknown:
        raise BadMessage(
            f"A message can't depend on {unknown[0]}: nothing is known of its result. Give its task keep=, longer than others "
            "take, and send it before."
        )


class Envelope(NamedTuple):
    """How a queue turns bodies into bytes, and what it says where a send says nothing."""

    codec: Codec
    max_body: int
    now_ms: Callable[[], int]  # this machine's idea of the time, for bounds
    attempts: Mapping[str, int] = {}  # of topics that have a task: a message is the same whichever way it is sent
    lives: Mapping[str, int] = {}  # of topics whose messages expire, in milliseconds

    def body(self, raw: bytes) -> Any:
        return decode(self.codec, raw, self.max_body)

    def message(
        self,
        topic: str,
        body: object,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        key: str | None = None,
        if_exists: IfExists = "keep",
        priority: Priority = "normal",
        expires_in: Duration | None = None,
        max_attempts: int | None = None,
        headers: Mapping[str, str] | None = None,
        operation: str | None = None,
        max_wait: Duration | None = None,
        unique_for: Duration | None = None,
        connection: object | None = None,  # an option of a send, for whoever sends the message
        depends_on: Iterable[str | Sent] | None = None,
        deadline: Duration | None = None,
        **carried: object,
    ) -> NewMessage:
        """One message, checked. What most sends leave out costs no call.

        `carried`: options that go with the message in a header, as core/send_options.py declares them.
        """
        if depends_on is not None or deadline is not None:
            refuse_times(depends_on, delay, at, if_exists)
            delay = DEADLINE if deadline is None else deadline
        wait, instant = (0 if delay is None else duration_ms(delay), None) if at is None else when(delay, at, self.now_ms)
        if type(topic) is not str or topic not in options.known_topics:
            topic = options.topic(topic)
        key = None if key is None else options.key(key)
        new = NewMessage(
            topic,
            body if type(body) is Encoded else encode(self.codec, body, self.max_body),
            wait,
            instant,
            key,
            "keep" if if_exists == "keep" else options.if_exists(if_exists),
            options.NORMAL if priority == "normal" else options.level(priority),
            self._life(topic, expires_in) if expires_in is not None or self.lives else None,
            self.attempts.get(topic, options.MAX_ATTEMPTS)
            if max_attempts is None
            else options.count(max_attempts, "max_attempts", options.MOST_ATTEMPTS),
            options.headers(headers) if headers else {},
            None if operation is None else options.operation(operation),
            None if key is None else sender(topic, key),
        )
        if max_attempts == options.MAX_ATTEMPTS != self.attempts.get(topic):  # else it would be as if nothing was said
            new = replace(new, headers={**new.headers, ATTEMPTS: str(max_attempts)})
        if carried:
            for name, value in carried.items():
                if value is not None:
                    new = with_carried(new, name, value)
        if max_wait is None and unique_for is None and depends_on is None and if_exists != "merge":
            return new
        return self._with_rest(new, max_wait, unique_for, depends_on)

    def _life(self, topic: str, expires_in: Duration | None) -> int | None:
        return shorter(None if expires_in is None else life_ms(expires_in), self.lives.get(topic))

    def _with_rest(
        self,
        new: NewMessage,
        max_wait: Duration | None,
        unique_for: Duration | None,
        depends_on: Iterable[str | Sent] | None,
    ) -> NewMessage:
        """With the options that few sends have."""
        new = replace(
            new,
            headers=new.headers if depends_on is None else with_dependencies(new.headers, depends_on),
            max_wait=None if max_wait is None else _longest(max_wait, new),
            unique_for=None if unique_for is None else _period(unique_for, new),
        )
        return new if new.if_exists != "merge" else self._listed(new)

    def _listed(self, new: NewMessage) -> NewMessage:
        """With a body that others can be merged into."""
        if new.key is None:
            raise BadOption("if_exists='merge' gathers what is sent under one key: give it with key=.")
        if not isinstance(self.codec, Json):
            raise BadOption(
                "if_exists='merge' makes a list of bodies, which are JSON then: this queue has a codec= of its own."
            )
        if len(new.body) + 2 > self.max_body:
            raise TooLarge(
                f"The body is {len(new.body):,} bytes encoded, and in a list it has to be under {self.max_body - 1:,}."
            )
        return replace(new, body=listed(new.body), largest=self.max_body)

    def messages(self, topic: str, items: Iterable[Outgoing | object], operation: str | None) -> list[NewMessage]:
        """All items, checked. With an operation each message gets one of its own, by its place."""
        topic, operation = options.topic(topic), options.operation(operation)
        if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
            raise BadOption(
                f"items is a {type(items).__name__}. Give a list of bodies or Outgoing(…); for one message use send()."
            )
        made: list[NewMessage] = []
        codec, largest, life = self.codec, self.max_body, self.lives.get(topic)
        most = self.attempts.get(topic, options.MAX_ATTEMPTS)
        for place, item in enumerate(items):
            try:
                if not isinstance(item, Outgoing):
                    made.append(NewMessage(topic, encode(codec, item, largest), max_attempts=most, expires_in=life))
                elif _only_waits(item):
                    body = item.body if type(item.body) is Encoded else encode(codec, item.body, largest)
                    wait = 0 if item.delay is None else duration_ms(item.delay)
                    made.append(NewMessage(topic, body, wait, max_attempts=most, expires_in=life))
                else:
                    one = self.message(
                        topic,
                        item.body,
                        delay=item.delay,
                        at=item.at,
                        key=item.key,
                        if_exists=item.if_exists,
                        priority=item.priority,
                        expires_in=item.expires_in,
                        max_attempts=item.max_attempts,
                        headers=item.headers,
                        max_wait=item.max_wait,
                        unique_for=item.unique_for,
                    )
                    made.append(one)
                if CARRIED and isinstance(item, Outgoing):
                    made[-1] = _with_all_carried(made[-1], item)
            except BadMessage as error:
                raise type(error)(f"Item {place}: {error}") from error
        if operation is None:
            return made
        return [replace(new, operation=f"{operation}#{place}") for place, new in enumerate(made)]


def with_carried(new: NewMessage, name: str, value: object) -> NewMessage:
    """With an option that goes with the message in a header."""
    header, text = CARRIED[name]
    return replace(new, headers={**new.headers, header: text(value)})


def _with_all_carried(new: NewMessage, item: Outgoing) -> NewMessage:
    for name in CARRIED:
        if (value := getattr(item, name, None)) is not None:
            new = with_carried(new, name, value)
    return new


def _only_waits(item: Outgoing) -> bool:
    """Whether it says no more than how long to wait, as most do."""
    return (
        item.at is None
        and item.key is None
        and item.expires_in is None
        and item.max_attempts is None
        and not item.headers
        and item.max_wait is None
        and item.unique_for is None
        and item.priority == "normal"
        and item.if_exists == "keep"
    )


def _longest(max_wait: Duration, new: NewMessage) -> int:
    longest = duration_ms(max_wait, "max_wait")
    if new.key is None or new.if_exists != "later":
        raise BadOption("max_wait is for messages that each send moves later: give it with key= and if_exists='later'.")
    if new.delay > longest or not longest:
        raise BadTime("max_wait is less than delay: the first message would be too late already. Give it more time.")
    return longest


def _period(unique_for: Duration, new: NewMessage) -> int:
    period = duration_ms(unique_for, "unique_for")
    if new.key is None or new.if_exists not in ("keep", "error"):
        raise BadOption("unique_for says how long a key is sent once: give it with key=, and if_exists 'keep' or 'error'.")
    if not period:
        raise BadTime("unique_for is 0: leave it out, or give it time.")
    return period


def when(delay: Duration | None, at: datetime | None, now_ms: Callable[[], int]) -> tuple[int, int | None]:
    """A delay in milliseconds, or an instant."""
    if at is None:
        return (0 if delay is None else duration_ms(delay)), None
    if delay is not None:
        raise BadTime("Both delay and at were given. Give one: delay='15m', or at=an aware datetime.")
    return 0, bounded_instant_ms(at, now_ms())


def room_wait(wait: Duration | None, connection: object | None) -> float | None:
    """Seconds to wait for room in a topic."""
    if wait is not None and connection is not None:
        raise BadOption("wait= was given together with connection=: a transaction would be kept open. Leave out one of them.")
    return None if wait is None else duration_ms(wait, "wait") / 1000


def held(new: NewMessage, sent: Sent) -> str:
    """Why a message was not sent."""
    if new.unique_for is not None:
        return f"Message {sent.id} of {new.topic} has the key {new.key!r}: it has not ended, or was sent within unique_for."
    why = " Its body is no list that another one could be merged into." if new.if_exists == "merge" else ""
    return (
        f"Message {sent.id} of {new.topic} has the key {new.key!r} and has not ended.{why} Cancel or reschedule it by its "
        "key, or send with if_exists='keep', 'replace' or 'later'."
    )


def ref(message: str | Sent | Info | None, topic: str | None, key: str | None) -> Ref:
    """Which message is meant."""
    if message is not None:
        if topic is not None or key is not None:
            raise BadOption("A message was given together with a topic or key. Give one: its id, or topic= and key=.")
        return Ref(id=message.id if isinstance(message, Sent | Info) else options.text(message, "message", 128))
    if topic is None or key is None:
        raise BadOption("Say which message: cancel(sent), cancel('its id') or cancel(topic='order.cancel', key='order:42').")
    return Ref(topic=options.topic(topic), key=options.key(key))


def move(which: Ref, delay: Duration | None, at: datetime | None, by: Duration | None, now_ms: Callable[[], int]) -> Move:
    if by is not None:
        if delay is not None or at is not None:
            raise BadTime("by was given together with delay or at. Give one: by='3d' moves a message from where it is.")
        return Move(which, duration_ms(by, "by"), origin="due")
    if delay is None and at is None:
        raise BadTime("Say the new time: reschedule(…, delay='5m'), by='3d', or at=an aware datetime.")
    wait, instant = when(delay, at, now_ms)
    return Move(which, wait, instant)


def info(stored: Stored, envelope: Envelope) -> Info:
    """What is stored, as users see it; a body that can't be read is given as the bytes it is."""
    try:
        body = envelope.body(stored.body)
    except BadMessage:
        body = stored.body
    return Info(
        id=stored.id,
        topic=stored.topic,
        state=stored.state,
        due=stored.due,
        attempt=stored.attempt,
        max_attempts=stored.max_attempts,
        key=stored.key,
        priority=options.PRIORITIES[stored.level],
        body=body,
        headers=stored.headers,
        last_error=stored.last_error,
        lease_until=stored.lease_until,
        expires=stored.expires,
        worker=None if stored.request is None else worker_of(stored.request),
        leased_since=stored.leased_since,
        attempts=attempts_of(stored.traces),
    )
