"""Checks of what users hand in; each refusal says what to do instead.

Each check returns plain text or a plain number: the str() of a member of a (str, Enum) is not its text.
"""

import re
from collections.abc import Mapping
from typing import TypeVar, get_args

from bide.errors import BadOption, BadTopic
from bide.types import IfExists, Priority, State

T = TypeVar("T")

MAX_ATTEMPTS = 3  # unless somebody says otherwise
MOST_ATTEMPTS = 1_000
PRIORITIES: tuple[Priority, ...] = get_args(Priority)
NORMAL = PRIORITIES.index("normal")
_IF_EXISTS: tuple[IfExists, ...] = get_args(IfExists)
_STATES: tuple[State, ...] = get_args(State)
_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,128}", re.ASCII)
known_topics: set[str] = set()  # a topic is used again and again: a look-up is cheaper than the pattern

OWN_TOPICS = (
    "bide.schedules",
    "bide.moving",  # what is on its way to another queue
    "bide.workers",  # what workers tell of themselves
)
"""Topics that are not the user's."""


def topic(value: object) -> str:
    if type(value) is str and value in known_topics:
        return value
    if not isinstance(value, str) or not _TOPIC.fullmatch(value):
        raise BadTopic(
            f"The topic is {_shown(value)}. A topic is 1 to 128 characters of A-Z a-z 0-9 . _ - as in 'order.cancel'."
        )
    name = str.__str__(value)
    if len(known_topics) < 10_000:
        known_topics.add(name)
    return name


def topics(values: tuple[str, ...]) -> tuple[str, ...]:
    if not values:
        raise BadTopic("Name at least one topic, as in queue.receive('order.cancel').")
    return tuple(dict.fromkeys(topic(value) for value in values))


def text(value: object, name: str, longest: int) -> str:
    """A key, id or operation: text that every engine can hold and every terminal can show."""
    if not isinstance(value, str) or not 1 <= len(value) <= longest or not value.isprintable():
        number = f" For this number: str({value})." if type(value) is int and abs(value) < 10**50 else ""
        raise BadOption(f"{name} is {_shown(value)}. Give 1 to {longest} printable characters, without line breaks.{number}")
    return str.__str__(value)


def key(value: str | None) -> str | None:
    return None if value is None else text(value, "key", 256)


def operation(value: str | None) -> str | None:
    return None if value is None else text(value, "operation", 128)


def confirm(value: object) -> str:
    if isinstance(value, str) and re.fullmatch(r"memory|aof|replicas:[1-9]\d?", value, re.ASCII):
        return str.__str__(value)
    raise BadOption(f"confirm is {_shown(value)}. Give 'memory', 'aof', or 'replicas:1' with the number of replicas.")


def if_exists(value: IfExists) -> IfExists:
    return _one_of(value, "if_exists", _IF_EXISTS)


def level(priority: object) -> int:
    """high 0, normal 1, low 2."""
    return PRIORITIES.index(_one_of(priority, "priority", PRIORITIES))


def state(value: State) -> State:
    return _one_of(value, "state", _STATES)


def _one_of(value: object, name: str, given: tuple[T, ...]) -> T:
    for each in given:
        if each == value:
            return each
    raise BadOption(f"{name} is {_shown(value)}. Give one of: {', '.join(map(str, given))}.")


def count(value: object, name: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= most:
        raise BadOption(f"{name} is {_shown(value)}. Give a whole number from 1 to {most:,}.")
    return int(value)


def headers(value: Mapping[str, str] | None) -> Mapping[str, str]:
    if not value:
        return {}
    given: object = value
    if not isinstance(given, Mapping):
        raise BadOption(f"headers is a {type(value).__name__}. Give a mapping of text to text.")
    size, plain = 0, {}
    for name, content in given.items():
        if not isinstance(name, str) or not isinstance(content, str) or not name:
            raise BadOption(f"The header {_shown(name)} is not text with a name: both sides of headers= must be str.")
        try:
            size += len(name.encode()) + len(content.encode())
            plain[str.__str__(name)] = str.__str__(content)
        except UnicodeEncodeError:
            raise BadOption(
                f"The header {_shown(name)} holds half a character (a lone surrogate), which can't be stored."
            ) from None
    if size > 8_192:
        raise BadOption(f"The headers are {size:,} bytes and the limit is 8,192. Put large things into the body.")
    return plain


def _shown(value: object) -> str:
    if isinstance(value, str):
        return ascii(value if len(value) <= 60 else value[:60] + "…")
    if isinstance(value, int | float) and abs(value) < 10**15:  # one that is huge is no easier to read than its type
        return repr(value)
    return f"a {type(value).__name__}" if value is not None else "None"
