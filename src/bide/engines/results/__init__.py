"""Kept results, and who waits for them: the words that the verbs of results take and answer. Times are milliseconds.

A result belongs to a message's id, and not to the message: it is kept apart, so that messages without one
cost nothing.
"""

from collections.abc import Sequence

import msgspec


class Expected(msgspec.Struct, frozen=True, gc=False):
    """A message of which a result is to be kept. Without one, it is remembered until then that the message was sent."""

    id: str
    until: int


class Kept(msgspec.Struct, frozen=True, gc=False):
    """What a finished message returned, for so many milliseconds. No value: it could not be kept."""

    id: str
    lasts: int
    value: bytes | None
    token: str = ""  # of the delivery that returned it


class Result(msgspec.Struct, frozen=True, gc=False):
    """What is known of a message's result: that it is expected, or that it is done, with its value."""

    done: bool
    value: bytes | None = None


OPEN = Result(done=False)


class Dependent(msgspec.Struct, frozen=True, gc=False):
    """A message that waits for others, until its deadline at the latest."""

    id: str
    on: tuple[str, ...]
    until: int


def apart(expected: Sequence[Expected | Dependent]) -> tuple[list[Expected], list[Dependent]]:
    """What is asked for results, and what for messages that wait for others."""
    return [each for each in expected if isinstance(each, Expected)], [each for each in expected if isinstance(each, Dependent)]


class Follow(msgspec.Struct, frozen=True, gc=False):
    """A dependent message is to be told when one of those that it waits for is done."""

    dependent: str
    on: str
    until: int


class Arrival(msgspec.Struct, frozen=True, gc=False):
    """One of those that a dependent message waits for is done. Without one, the dependent message was called."""

    dependent: str
    on: str | None
