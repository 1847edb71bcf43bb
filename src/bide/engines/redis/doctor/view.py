"""What a node of a Cluster knows of all nodes."""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from bide.engines.redis.doctor.look import text_of
from bide.engines.redis.doctor.visits import Told
from bide.engines.redis.topology import SLOTS, Place, Span, spans

_MOVING = re.compile(r"\[(\d+)-([<>])-(\w+)\]")


class Moving(NamedTuple):
    """A slot that its node is to give to another, or to get from another."""

    slot: int
    leaves: bool
    other: str  # id


class Row(NamedTuple):
    """What a node thinks of one node."""

    id: str
    address: str
    flags: frozenset[str]
    master: str  # id, of a replica
    connected: bool
    moving: tuple[Moving, ...]  # told of itself only


class View(NamedTuple):
    spans: Sequence[Span]
    places: Mapping[str, Place]  # by id, where clients reach those who serve
    rows: Sequence[Row]
    state: Mapping[str, str]

    @property
    def masters(self) -> list[Place]:
        """Those with slots, by their first slot."""
        return list(dict.fromkeys(span.master for span in self.spans))

    @property
    def replicas(self) -> dict[Place, list[Place]]:
        """Of each of the masters."""
        found: dict[Place, dict[Place, None]] = {}
        for span in self.spans:
            found.setdefault(span.master, {}).update(dict.fromkeys(span.replicas))
        return {master: list(replicas) for master, replicas in found.items()}

    def owner(self, slot: int) -> Place | None:
        return next((span.master for span in self.spans if span.first <= slot <= span.last), None)

    def name(self, id: str) -> str:
        """Where it is, as clients know it if they do."""
        row = next((row for row in self.rows if row.id == id), None)
        return str(self.places.get(id) or (row.address if row else id))

    def missing(self) -> list[str]:
        """Ranges of slots that no node has."""
        found, next_slot = [], 0
        for first, last in [*((span.first, span.last) for span in self.spans), (SLOTS, SLOTS)]:
            if first > next_slot:
                found.append(f"{next_slot}-{first - 1}" if first - 1 > next_slot else f"{next_slot}")
            next_slot = max(next_slot, last + 1)
        return found


def view_of(told: Told, place: Place) -> View | None:
    """From a node's answers to CLUSTER SLOTS, and, where the user may ask for them, INFO and NODES; None without slots."""
    info, slots, nodes = (told.answers.get(name) for name in ("info", "slots", "nodes"))
    if not isinstance(slots, list):
        return None
    found = spans(slots, place)
    ids: dict[str, Place] = {}
    for span, answer in zip(found, sorted(slots, key=lambda each: (int(each[0]), int(each[1]))), strict=True):
        for where, node in zip((span.master, *span.replicas), answer[2:], strict=True):
            ids[text_of(node[2])] = where
    return View(found, ids, rows(nodes) if isinstance(nodes, bytes) else (), state(info) if isinstance(info, bytes) else {})


def state(info: bytes) -> dict[str, str]:
    return dict(line.split(":", 1) for line in text_of(info).splitlines() if ":" in line)


def rows(nodes: bytes) -> list[Row]:
    found = []
    for line in text_of(nodes).splitlines():
        id, address, flags, master, _, _, _, link, *slots = line.split(" ")
        moving = [Moving(int(slot), way == ">", other) for slot, way, other in _MOVING.findall(" ".join(slots))]
        shown = address.partition("@")[0].partition(",")[0]
        found.append(Row(id, shown, frozenset(flags.split(",")), master.strip("-"), link == "connected", tuple(moving)))
    return found
