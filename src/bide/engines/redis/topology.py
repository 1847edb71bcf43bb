"""How the messages of a namespace are spread over shards, and where those are, as Sentinels and nodes of a Cluster tell.

`3` is three shards, 0 to 2; `3;1;4` the same with chosen keys in a Cluster or behind a proxy: the suffixes of all but
shard 0. After a reshard it is `1:3|6@3`: for the first time otherwise, six shards from number 3 on, while the three before
them empty themselves.
"""

import hashlib
import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.crc import key_slot

FORM = re.compile(r"(?:\d+:)?(?:\d+(?:@\d+)?(?:;\d+)*\|)*\d+(?:@\d+)?(?:;\d+)*", re.ASCII)
MOST = 128  # numbers of shards, as an id begins with one: twice 64, so that whoever has as many can go on to as many others
SLOTS = 16_384
LIKELY = 16


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


class ShardSpread(NamedTuple):
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

    def with_new(self, count: int) -> "ShardSpread":
        """So many shards more, with numbers that no other has; all others empty themselves."""
        taken = set(self.live)
        for first in range(MOST - count + 1):
            if taken.isdisjoint(range(first, first + count)):
                return ShardSpread(self.epoch + 1, [*self.generations, Generation(first, count)])
        raise ValueError("no numbers are left")

    def without_oldest(self) -> "ShardSpread":
        return ShardSpread(self.epoch + 1, self.generations[1:])


def read(text: str) -> ShardSpread:
    epoch, colon, rest = text.rpartition(":")
    generations = []
    for part in rest.split("|"):
        head, *suffixes = part.split(";")
        count, _, first = head.partition("@")
        generations.append(Generation(int(first or 0), int(count), tuple(suffixes)))
    return ShardSpread(int(epoch) if colon else 0, generations)


def plain(count: int) -> ShardSpread:
    return ShardSpread(0, [Generation(0, count)])


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


class ServerPlace(NamedTuple):
    """A server, as one connects to it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class SlotSpan(NamedTuple):
    """Slots of a Cluster that lie together, the node that has them, and its replicas."""

    first: int
    last: int
    master: ServerPlace
    replicas: tuple[ServerPlace, ...]


def slot_of(tag: str) -> int:
    return key_slot(tag.encode())


def spans(told: Sequence[Any], asked: ServerPlace) -> list[SlotSpan]:
    """An answer to CLUSTER SLOTS, in the order of the slots. `asked`: who gave it, as some don't name themselves."""
    found = []
    for first, last, *nodes in told:
        places = [_place(host, port, asked) for host, port, *_ in nodes]
        found.append(SlotSpan(int(first), int(last), places[0], tuple(places[1:])))
    return sorted(found)


def moved(error: BaseException, asked: ServerPlace) -> tuple[int, ServerPlace] | None:
    """Of an answer MOVED: the slot, and the node that has it now."""
    found = re.search(r"(?:MOVED )?(\d+) (\S*):(\d+)$", str(error))
    return (int(found[1]), _place(found[2], found[3], asked)) if found else None


def master_of(told: Sequence[bytes]) -> tuple[int, ServerPlace] | None:
    """Of a Sentinel's answer about a service: how new what it knows is, and the master."""
    fields = {name.decode(): value.decode() for name, value in zip(told[::2], told[1::2], strict=False)}
    if not fields.get("ip") or not fields.get("port"):
        return None
    return int(fields.get("config-epoch") or 0), ServerPlace(fields["ip"], int(fields["port"]))


def well_placed(namespace: str, first: int, size: int | None, known: Sequence[SlotSpan]) -> Generation:
    """So many shards from this number on, or one a master, that lie evenly over the masters of a Cluster and their slots.

    Shard 0 has the same tag always, as whoever looks for the others begins there.
    """
    slots: dict[ServerPlace, list[int]] = {}
    for span in known:
        slots.setdefault(span.master, []).extend(range(span.first, span.last + 1))
    anchor = slot_of(f"{namespace}:0")
    masters = sorted(slots, key=lambda place: anchor not in slots[place])  # its own one is the first
    size = size or len(masters)
    rounds = -(-size // len(masters))
    suffixes = []
    for number in range(max(1, first), first + size):
        turn, which = divmod(number - first, len(masters))
        own = slots[masters[which]]
        part = set(own[len(own) * turn // rounds : len(own) * (turn + 1) // rounds] or own)
        tried = map(str, itertools.count())
        suffixes.append(next(suffix for suffix in tried if slot_of(f"{namespace}:{number}.{suffix}") in part))
    return Generation(first, size, tuple(suffixes))


def likely_tags(namespace: str) -> list[str]:
    """Tags that shards of a Cluster have, but for shard 0: of the lowest numbers, with those suffixes that are tried first."""
    return [f"{namespace}:{number}.{suffix}" for number in range(1, LIKELY + 1) for suffix in range(LIKELY)]


def _place(host: Any, port: Any, asked: ServerPlace) -> ServerPlace:
    """As a node is named; one without a name is at the host that was asked."""
    text = host.decode() if isinstance(host, bytes) else str(host or "")
    return ServerPlace(text if text not in ("", "?") else asked.host, int(port))
