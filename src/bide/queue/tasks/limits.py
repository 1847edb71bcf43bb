"""What holds back a task's messages, a lock, a limit or a rate; and what it says of those that are overdue."""

import hashlib
import re
import string
from collections.abc import Collection, Mapping
from typing import Any, Literal, NamedTuple, TypeAlias, get_args

from bide.core import options
from bide.core.rate import Rate
from bide.core.times import duration_ms
from bide.engines.base import Claimed, Stored
from bide.errors import BadOption, BadTime
from bide.queue.deliveries import PLANNED
from bide.queue.tasks.arguments import Unread
from bide.types import Duration

OnConflict: TypeAlias = Literal["wait", "defer", "error"]
"""What becomes of a message whose lock is held."""

LOCK_WAIT, LOCK_DELAY = "10m", "5s"  # unless a task says otherwise

_RATE = re.compile(r"(\d{1,9})/(\d{0,9})(ms|s|m|h|d|w)", re.ASCII)
_LONGEST = 256  # characters of a template
_LONGEST_NAME = 1_000  # bytes of a gate's name, which all engines can hold
LATE = 60_000  # ms after its due time, from which a message is overdue


class Template:
    """A name that a message's arguments are put into, such as "order:{order}"."""

    def __init__(self, text: object, name: str, known: Collection[str] | None) -> None:
        """`known`: the arguments there are; None where a function takes any."""
        self._name = name
        self._text: str = options.text(text, name, _LONGEST)
        try:
            parts = list(string.Formatter().parse(self._text))
        except ValueError as error:
            raise BadOption(
                f"{name} is {self._text!a}: {error}. Write an argument's name in braces: 'order:{{order}}'."
            ) from None
        self.fields: tuple[str, ...] = tuple(field for _, field, _, _ in parts if field is not None)
        for field in self.fields:
            if not field.isidentifier() or (known is not None and field not in known):
                there = ", ".join(sorted(known or ())) or "none"
                raise BadOption(f"{name} is {self._text!a}, and {field!a} is no argument of the task. There is: {there}.")

    def of(self, arguments: Mapping[str, Any]) -> str:
        """Raises Unread if an argument can't be put in: without its name, nothing would hold the message back."""
        try:
            return self._text.format_map(arguments)
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise Unread(f"The arguments do not fit {self._name}={self._text!a}: {why}", elsewhere=False) from error


class GateStep(NamedTuple):
    """One gate that a message has to pass before its handler is called."""

    gate: str
    places: int  # so many at once, or begun in any
    window: int  # of so many milliseconds; 0: at once
    waits: bool  # a message that may not pass waits for its turn; otherwise all of its topic do
    lock: str | None = None  # whose gate it is


class Limits:
    def __init__(
        self,
        topic: str,
        known: Collection[str] | None,
        *,
        concurrency: int | None,
        rate: str | None,
        per: str | None,
        lock: str | None,
        on_conflict: OnConflict,
        lock_wait: Duration,
        lock_delay: Duration,
        per_counts: bool = False,
    ) -> None:
        """`per_counts`: something else counts for each value too."""
        if on_conflict not in get_args(OnConflict):
            raise BadOption(f"on_conflict is {on_conflict!r}. Give one of: {', '.join(get_args(OnConflict))}.")
        if per is not None and concurrency is None and rate is None and not per_counts:
            raise BadOption("per= says of what concurrency=, rate= or catch_up='latest' counts: give one of them too.")
        self.topic: str = topic
        self.concurrency: int | None = None if concurrency is None else options.count(concurrency, "concurrency", 10_000)
        self.rate: Rate | None = None if rate is None else read_rate(rate)
        self.per: Template | None = None if per is None else Template(per, "per", known)
        if self.per is not None and not self.per.fields:
            raise BadOption(f"per is {per!r}, the same for all messages. Name an argument in braces: per='{{user}}'.")
        self.lock: Template | None = None if lock is None else Template(lock, "lock", known)
        self.on_conflict: OnConflict = on_conflict
        self.lock_wait: int = duration_ms(lock_wait, "lock_wait")
        self.lock_delay: int = _positive(lock_delay, "lock_delay")

    @property
    def any(self) -> bool:
        return self.concurrency is not None or self.rate is not None or self.lock is not None

    @property
    def of_topic(self) -> bool:
        """Whether the topic as a whole is limited."""
        return self.per is None and (self.concurrency is not None or self.rate is not None)

    @property
    def calls(self) -> bool:
        """Whether messages wait for their turn, and are called."""
        return self.lock is not None or (self.per is not None and self.concurrency is not None)

    def steps(self, arguments: Mapping[str, Any]) -> list[GateStep]:
        """What a message has to pass, the narrowest first: who is held up there holds up nobody else."""
        found = []
        if self.lock is not None:
            name = self.lock.of(arguments)
            found.append(GateStep(lock_gate(name), 1, 0, waits=True, lock=name))
        whose = self.topic if self.per is None else f"{self.topic} {self.per.of(arguments)}"
        waits = self.per is not None
        if self.concurrency is not None:
            found.append(GateStep(_gate(f"at once {whose}"), self.concurrency, 0, waits))
        if self.rate is not None:
            found.append(GateStep(_gate(f"rate {whose}"), self.rate.most, self.rate.window, waits))
        return found


def lock_gate(name: str) -> str:
    """The gate of a lock, which tasks and `queue.lock` share."""
    return _gate(f"lock {name}")


def _gate(name: str) -> str:
    """A name that every engine can hold: arguments may be of any length, and have characters that PostgreSQL does not take."""
    encoded = name.encode(errors="surrogatepass")
    if len(encoded) <= _LONGEST_NAME and name.isprintable():
        return name
    shown = "".join(each for each in name[:64] if each.isprintable())
    return f"{shown} {hashlib.sha256(encoded).hexdigest()}"


def read_rate(value: object) -> Rate:
    """From "100/m" or "5/10s"."""
    found = _RATE.fullmatch(value.replace(" ", "")) if isinstance(value, str) else None
    if found is None:
        raise BadOption(
            f"rate is {value!r}. Give a whole number and a stretch of time: '100/m', '5/10s' (units: ms s m h d w)."
        )
    most, length, unit = found.groups()
    rate = Rate(int(most), duration_ms(f"{length or 1}{unit}", "rate"))
    if not rate.most or not rate.window:
        raise BadOption(f"rate is {value!r}: nothing could ever begin. Give at least 1, in at least 1 ms.")
    return rate


def refuse_idle(lock: str | None, on_conflict: OnConflict, lock_wait: Duration, lock_delay: Duration) -> None:
    """Refuse what would have no effect: its author believes that it has."""
    given = {"on_conflict": on_conflict != "wait", "lock_wait": lock_wait != LOCK_WAIT, "lock_delay": lock_delay != LOCK_DELAY}
    if lock is None and any(given.values()):
        name = next(each for each, there in given.items() if there)
        raise BadOption(f"{name}= says what to do when the lock is taken: give lock= too.")
    for name, needed in (("lock_wait", "wait"), ("lock_delay", "defer")):
        if given[name] and on_conflict != needed:
            raise BadOption(
                f"{name}= is for on_conflict={needed!r}, and on_conflict is {on_conflict!r}: leave out one of them."
            )


def _positive(value: Duration, name: str) -> int:
    ms = duration_ms(value, name)
    if not ms:
        raise BadTime(f"{name} is 0: the message would be tried again without end. Give it time.")
    return ms


CatchUp: TypeAlias = str
""""all", "latest", or a rate such as "10/s"."""

Place: TypeAlias = tuple[int, str]  # by due time; among equals any one is the newest, for all workers the same


class Overdue(NamedTuple):
    """Either the newest of each value is called, or all are, at a rate."""

    gate: str
    rate: Rate | None
    per: Template | None

    def takes(self, claimed: Claimed, now: int) -> bool:
        """Whether it is to decide: the handler has not begun yet, and no schedule says what becomes of it."""
        return now - claimed.due > LATE and claimed.attempt == 1 and PLANNED not in claimed.headers

    def value(self, arguments: Mapping[str, Any]) -> str:
        return "" if self.per is None else self.per.of(arguments)


def read_overdue(topic: str, catch_up: CatchUp, limits: Limits) -> Overdue | None:
    """None: all are called, as if they were not late."""
    if catch_up == "all":
        return None
    if catch_up == "latest":
        return Overdue("", None, limits.per)
    try:
        rate = read_rate(catch_up)
    except BadOption:
        raise BadOption(f"catch_up is {catch_up!r}. Give 'all', 'latest', or a rate such as '10/s'.") from None
    if limits.calls:
        raise BadOption(
            f"catch_up={catch_up!r} was given together with lock=, or with concurrency= and per=: a message whose turn comes "
            "there would be put off again. Leave out one of them, or use catch_up='latest'."
        )
    return Overdue(f"late {topic}", rate, None)


class Survey:
    """The newest message of each value, among all that were due at an instant and had not ended."""

    def __init__(self, until: int) -> None:
        self.until: int = until
        self._newest: dict[str, Place] = {}
        self._several: set[str] = set()

    def add(self, value: str, stored: Stored) -> None:
        place, known = _place(stored), self._newest.get(value)
        if known is not None:
            self._several.add(value)
        if known is None or place > known:
            self._newest[value] = place

    def close(self) -> None:
        """All have been seen: those that are alone need not be remembered."""
        self._newest = {value: self._newest[value] for value in self._several}

    def leaves_out(self, value: str, claimed: Claimed) -> bool:
        """Whether a newer one was there."""
        newest = self._newest.get(value)
        return newest is not None and newest > _place(claimed)


def _place(message: Stored | Claimed) -> Place:
    return message.due, message.id


def is_first(stored: Stored) -> bool:
    """Whether the message tells when it was first due: a retry has another time."""
    return stored.attempt <= (stored.state == "leased")
