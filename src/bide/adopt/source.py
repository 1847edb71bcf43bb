"""What a source of waiting messages is: the old system, as `bide adopt` sees it. Its verbs, in the order of their use."""

import zlib
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, TypeAlias
from uuid import uuid4

import msgspec

from bide.engines.base import NewMessage

Names: TypeAlias = Callable[[Sequence[str]], object]
"""Is told the names of entries."""


class UnreadableEntry(ValueError):
    """An entry can't become a message. The text says why, in words that are the same for all such entries."""


class FoundEntry(msgspec.Struct, frozen=True, gc=False):
    """An entry that was read, as the message that it becomes."""

    name: str  # of at most 100 printable characters, and of this take alone: the operation of its put, also after a kill
    message: NewMessage  # its operation is set by the adoption
    crc: int | None = None  # of the body that an earlier run has sent, if the message is not that one


class RefusedEntry(NamedTuple):
    """An entry that is left where it is."""

    entry: str  # what it is called at the source, for people
    reason: str  # to be counted by, as that of Unreadable
    held: str = ""  # its name, if it was taken before it could be read: the adoption gives it back


class Entries(NamedTuple):
    """What was found or taken at a source."""

    found: Sequence[FoundEntry] = ()
    refused: Sequence[RefusedEntry] = ()  # each entry once a run, though it is met again
    gone: int = 0  # were read, and somebody else had taken them before us


class EarlierRun(NamedTuple):
    """What an earlier run took and did not finish."""

    found: Sequence[FoundEntry] = ()
    refused: Sequence[RefusedEntry] = ()  # can't be read with the options of this run
    age: float = 0.0  # seconds since the oldest of them was taken, by the clock of the source
    unsure: bool = False  # an old worker may have done some of them, though they were taken
    ended: Sequence[FoundEntry] = ()  # were changed or ended there since: of each, a message under its name that nobody may get
    known: Sequence[FoundEntry] = ()  # the same, of which a run before knew: it may have taken the copies back


def new_take(destination: str) -> str:
    """The name of a take, which no other has; it tells for which queue that is."""
    return f"{_mark(destination)}{uuid4().hex[:10]}"


def is_for_another(name: str, destination: str) -> bool:
    """Whether an entry of this name was taken for another queue."""
    return "to." in name and _mark(destination) not in name


def _mark(destination: str) -> str:
    return f"to.{zlib.crc32(destination.encode()):08x}."


class AdoptSource(Protocol):
    """Where messages wait. All verbs raise a BideError, and then what they were to do can be done again.

    `take` is atomic for each entry: an old consumer gets it, or the adopter does. And it is durable: what was taken is held
    at the source, or in a file, so that the next run finds it when this one is killed.
    """

    @property
    def kind(self) -> str:
        """The command, as redis-zset. Operations begin with it."""

    @property
    def shown(self) -> str:
        """What and where it is, without a password."""

    def aim(self, destination: str) -> None:
        """For which queue entries are taken: a part of the names of takes."""

    def count(self) -> int | None:
        """How many entries wait there. None if nobody can tell."""

    def peek(self, limit: int) -> Entries:
        """So many entries of those that are due first, of each part of the source. Nothing is changed."""

    def held(self) -> EarlierRun:
        """What an earlier run took and neither finished nor gave back. No entry is finished or given back."""

    def take(self, limit: int) -> Entries:
        """Take at most so many entries, and none that was refused or given back in this run. No entry at all: there is none."""

    def finish(self, names: Sequence[str], changed: Names) -> None:
        """Forget entries that were taken or held: bide has them. `changed` is told of those that were changed or ended there
        meanwhile, if the source can tell, and takes bide's copies back. They stay there as they are."""

    def give_back(self, names: Sequence[str]) -> None:
        """Put entries that were taken or held back as they were. This run does not take them again."""

    def settle(self) -> None:
        """All that `held` told has been dealt with; of what was changed or ended there, the copies have been taken back."""

    def close(self) -> None:
        """Close the connections."""
