"""What Sentinels and the nodes of a Cluster tell of where keys are."""

import itertools
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from redis.crc import key_slot

from bide.engines.redis.spread import Generation

SLOTS = 16_384
LIKELY = 16


class Place(NamedTuple):
    """A server, as one connects to it."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Span(NamedTuple):
    """Slots of a Cluster that lie together, the node that has them, and its replicas."""

    first: int
    last: int
    master: Place
    replicas: tuple[Place, ...]


def slot_of(tag: str) -> int:
    return key_slot(tag.encode())


def spans(told: Sequence[Any], asked: Place) -> list[Span]:
    """An answer to CLUSTER SLOTS, in the order of the slots. `asked`: who gave it, as some don't name themselves."""
    found = []
    for first, last, *nodes in told:
        places = [_place(host, port, asked) for host, port, *_ in nodes]
        found.append(Span(int(first), int(last), places[0], tuple(places[1:])))
    return sorted(found)


def moved(error: BaseException, asked: Place) -> tuple[int, Place] | None:
    """Of an answer MOVED: the slot, and the node that has it now."""
    found = re.search(r"(?:MOVED )?(\d+) (\S*):(\d+)$", str(error))
    return (int(found[1]), _place(found[2], found[3], asked)) if found else None


def master_of(told: Sequence[bytes]) -> tuple[int, Place] | None:
    """Of a Sentinel's answer about a service: how new what it knows is, and the master."""
    fields = {name.decode(): value.decode() for name, value in zip(told[::2], told[1::2], strict=False)}
    if not fields.get("ip") or not fields.get("port"):
        return None
    return int(fields.get("config-epoch") or 0), Place(fields["ip"], int(fields["port"]))


def well_placed(namespace: str, first: int, size: int | None, known: Sequence[Span]) -> Generation:
    """So many shards from this number on, or one a master, that lie evenly over the masters of a Cluster and their slots.

    Shard 0 has the same tag always, as whoever looks for the others begins there.
    """
    slots: dict[Place, list[int]] = {}
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


def _place(host: Any, port: Any, asked: Place) -> Place:
    """As a node is named; one without a name is at the host that was asked."""
    text = host.decode() if isinstance(host, bytes) else str(host or "")
    return Place(text if text not in ("", "?") else asked.host, int(port))
