"""Kept results: what the scripts are told, and what they answer."""

from collections.abc import Sequence
from typing import Any

from bide.engines.redis.protocol import Arg
from bide.engines.results import OPEN, Arrival, Dependent, Expected, Follow, Kept, Result

_FOLLOWED = {"1": True, "0": False, "-": None}


def expect(expected: Sequence[Expected]) -> list[Arg]:
    args: list[Arg] = [len(expected)]
    for each in expected:
        args += (each.id, each.until)
    return args


def fulfil(kept: Sequence[Kept]) -> list[Arg]:
    args: list[Arg] = [len(kept)]
    for each in kept:
        args += (each.id, each.lasts, each.token, b"n" if each.value is None else b"d" + each.value)
    return args


def size_of(kept: Kept) -> int:
    """In KiB."""
    return len(kept.value or b"") >> 10


class Followers:
    """The dependent messages that follow one, told in pages."""

    def __init__(self, page: Sequence[bytes]) -> None:
        self._names: dict[str, None] = {}
        self.hear(page)

    def hear(self, page: Sequence[Any]) -> None:
        begins, total, *names = page
        self._names.update(dict.fromkeys(map(bytes.decode, names)))
        self.begins: str = begins.decode()  # where the next page begins; nothing after the last
        if not self.begins and len(self._names) < total:  # another server has taken over, which has them in another order
            self.begins = "0"

    def names(self) -> list[str]:
        return list(self._names)


def followers(reply: Sequence[Any]) -> list[Followers]:
    return list(map(Followers, reply[1]))


def results(reply: Sequence[Any]) -> list[Result | None]:
    return [_result(bytes(told)) for told in reply[1]]


def _result(told: bytes) -> Result | None:
    if not told:
        return None
    if told[:1] == b"o":
        return OPEN
    return Result(done=True, value=told[1:] if told[:1] == b"d" else None)


def depend(dependents: Sequence[Dependent]) -> list[Arg]:
    args: list[Arg] = [len(dependents)]
    for each in dependents:
        args += (each.id, each.until, len(each.on), *each.on)
    return args


def follow(follows: Sequence[Follow]) -> list[Arg]:
    args: list[Arg] = [len(follows)]
    for each in follows:
        args += (each.on, each.dependent, each.until)
    return args


def followed(reply: Sequence[Any]) -> list[bool | None]:
    return [_FOLLOWED[letter] for letter in reply[1].decode()]


def arrive(arrivals: Sequence[Arrival]) -> list[Arg]:
    args: list[Arg] = [len(arrivals)]
    for each in arrivals:
        args += (each.dependent, each.on or "")
    return args


def ready(reply: Sequence[Any]) -> list[bool]:
    return [letter == "1" for letter in reply[1].decode()]
