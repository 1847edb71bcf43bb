"""How the messages of a namespace are spread over shards, and how that is written: in every shard, and in every call.

`3` is three shards, 0 to 2; `3;1;4` the same with chosen keys in a Cluster or behind a proxy: the suffixes of all but
shard 0. After a reshard it is `1:3|6@3`: for the first time otherwise, six shards from number 3 on, while the three before
them empty themselves.
"""

import hashlib
import re
from collections.abc import Sequence
from typing import NamedTuple

FORM = re.compile(r"(?:\d+:)?(?:\d+(?:@\d+)?(?:;\d+)*\|)*\d+(?:@\d+)?(?:;\d+)*", re.ASCII)
MOST = 128  # numbers of shards, as an id begins with one: twice 64, so that whoever has as many can go on to as many others


class Generation(NamedTuple):
    """Shards that were made together: each key belongs to one of them."""

    first: int
    size: int
    suffixes: tuple[str, ...] = ()  # of all, but for shard 0

    @property
    def numbers(self) -> range:
        return range(self.first, self.first + self.size)

    def tag(self, namespace: str, number: int) -> str:
        """What the keys of a shard begin with; in a Cluster it decides on which node they are."""
        at = number - self.first - (not self.first)
        return f"{namespace}:{number}.{self.suffixes[at]}" if self.suffixes and number else f"{namespace}:{number}"


class Spread(NamedTuple):
    epoch: int  # how often it was changed
    generations: Sequence[Generation]  # the last takes what is new, the others empty themselves

    @property
    def live(self) -> list[int]:
        return [number for each in self.generations for number in each.numbers]

    @property
    def highest(self) -> int:
        """The highest number of a shard that there is or was."""
        return MOST - 1 if self.epoch else self.live[-1]

    @property
    def current(self) -> Generation:
        return self.generations[-1]

    def __str__(self) -> str:
        return (f"{self.epoch}:" if self.epoch else "") + "|".join(map(_written, self.generations))

    def with_new(self, count: int) -> "Spread":
        """So many shards more, with numbers that no other has; all others empty themselves."""
        taken = set(self.live)
        for first in range(MOST - count + 1):
            if taken.isdisjoint(range(first, first + count)):
                return Spread(self.epoch + 1, [*self.generations, Generation(first, count)])
        raise ValueError("no numbers are left")

    def without_oldest(self) -> "Spread":
        return Spread(self.epoch + 1, self.generations[1:])


def read(text: str) -> Spread:
    epoch, colon, rest = text.rpartition(":")
    generations = []
    for part in rest.split("|"):
        head, *suffixes = part.split(";")
        count, _, first = head.partition("@")
        generations.append(Generation(int(first or 0), int(count), tuple(suffixes)))
    return Spread(int(epoch) if colon else 0, generations)


def plain(count: int) -> Spread:
    return Spread(0, [Generation(0, count)])


def scattered(namespace: str, first: int, size: int) -> Generation:
    """Shards whose tags differ by more than their last characters, as the hashes of some proxies hardly mix these.

    Everybody finds the same suffixes. Shard 0 has the same tag always, as whoever looks for the others begins there.
    """
    return Generation(first, size, tuple(_mixed(f"{namespace}:{number}") for number in range(max(1, first), first + size)))


def _mixed(text: str) -> str:
    return f"{int.from_bytes(hashlib.sha256(text.encode()).digest()) % 1000:03}"


def _written(each: Generation) -> str:
    head = f"{each.size}@{each.first}" if each.first else str(each.size)
    return ";".join([head, *each.suffixes])
