"""What the nodes of a Cluster know of each other, how shards lie over the masters, and which slots are on their way."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import redis.exceptions as theirs

from bide.core.formats import plural
from bide.engines.base import Finding
from bide.engines.redis.doctor.visits import Look, ServerTold, Stop, Visits, refusal, text_of
from bide.engines.redis.failures import other_spread
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.topology import (
    SLOTS,
    ServerPlace,
    ShardSpread,
    SlotSpan,
    moved,
    plain,
    read,
    slot_of,
    spans,
    well_placed,
)

_MOVING = re.compile(r"\[(\d+)-([<>])-(\w+)\]")
PAUSE = 1.0  # seconds in which a slot that is being moved loses a key


class MovingSlot(NamedTuple):
    """A slot that its node is to give to another, or to get from another."""

    slot: int
    leaves: bool
    other: str  # id


class NodeRow(NamedTuple):
    """What a node thinks of one node."""

    id: str
    address: str
    flags: frozenset[str]
    master: str  # id, of a replica
    connected: bool
    moving: tuple[MovingSlot, ...]  # told of itself only


class View(NamedTuple):
    spans: Sequence[SlotSpan]
    places: Mapping[str, ServerPlace]  # by id, where clients reach those who serve
    rows: Sequence[NodeRow]
    state: Mapping[str, str]

    @property
    def masters(self) -> list[ServerPlace]:
        """Those with slots, by their first slot."""
        return list(dict.fromkeys(span.master for span in self.spans))

    @property
    def replicas(self) -> dict[ServerPlace, list[ServerPlace]]:
        """Of each of the masters."""
        found: dict[ServerPlace, dict[ServerPlace, None]] = {}
        for span in self.spans:
            found.setdefault(span.master, {}).update(dict.fromkeys(span.replicas))
        return {master: list(replicas) for master, replicas in found.items()}

    def owner(self, slot: int) -> ServerPlace | None:
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


def view_of(told: ServerTold, place: ServerPlace) -> View | None:
    """From a node's answers to CLUSTER SLOTS, and, where the user may ask for them, INFO and NODES; None without slots."""
    info, slots, nodes = (told.answers.get(name) for name in ("info", "slots", "nodes"))
    if not isinstance(slots, list):
        return None
    found = spans(slots, place)
    ids: dict[str, ServerPlace] = {}
    for span, answer in zip(found, sorted(slots, key=lambda each: (int(each[0]), int(each[1]))), strict=True):
        for where, node in zip((span.master, *span.replicas), answer[2:], strict=True):
            ids[text_of(node[2])] = where
    return View(found, ids, rows(nodes) if isinstance(nodes, bytes) else (), state(info) if isinstance(info, bytes) else {})


def state(info: bytes) -> dict[str, str]:
    return dict(line.split(":", 1) for line in text_of(info).splitlines() if ":" in line)


def rows(nodes: bytes) -> list[NodeRow]:
    found = []
    for line in text_of(nodes).splitlines():
        id, address, flags, master, _, _, _, link, *slots = line.split(" ")
        moving = [MovingSlot(int(slot), way == ">", other) for slot, way, other in _MOVING.findall(" ".join(slots))]
        shown = address.partition("@")[0].partition(",")[0]
        found.append(NodeRow(id, shown, frozenset(flags.split(",")), master.strip("-"), link == "connected", tuple(moving)))
    return found


class SlotMove(NamedTuple):
    slot: int
    source: str | None  # id of the node that gives it; None when no node does
    target: str | None


def learn(visits: Visits, own: Namespace, view: View) -> list[Finding]:
    """Have the namespace know how it is spread, as stored, or as it will be. Gives what is wrong with that."""
    asked = own.address.shards
    place, meta = view.owner(slot_of(own.tag(0))), f"{own.prefix(0)}meta"
    if place is None:
        own.spread_as(plain(asked or 1))
        return []
    told = _ask_for_spread(visits, own, place, meta)
    if "goes to" in told.answers:
        told = _ask_for_spread(visits, own, told.answers["goes to"], meta)
    if "spread" not in told.answers:
        own.spread_as(plain(asked or 1))
        why = told.answers.get("why") or (told.lost.value if told.lost else "nobody knows")
        return [Finding("shards", f"how the others are spread is not known: {why}", "warn", "run this as an administrator")]
    spread = told.answers["spread"]
    if spread is None:
        own.spread_as(ShardSpread(0, [well_placed(own.address.namespace, 0, asked, view.spans)]))
        return []
    found = read(text_of(spread))
    own.spread_as(found)
    if found.epoch or asked in (None, found.current.size):
        return []
    return [Finding("shards", f"{found.current.size}", "bad", other_spread(own.address.shown, text_of(spread)))]


def _ask_for_spread(visits: Visits, own: Namespace, place: ServerPlace, meta: str) -> ServerTold:
    def ask(look: Look, told: ServerTold) -> None:
        try:
            told.answers["spread"] = look.ask_all([("ASKING",), ("HMGET", meta, "shards")])[1][0]  # also while it moves
        except theirs.AskError as error:
            there = moved(error, place)
            if there is not None:
                told.answers["goes to"] = there[1]
        except theirs.ResponseError as error:
            told.answers["why"] = refusal(look, error)

    [told] = visits.all([Stop(own.address, place)], ask)
    return told


def where(own: Namespace, view: View) -> dict[ServerPlace, list[int]]:
    """The shards of each master."""
    found: dict[ServerPlace, list[int]] = {}
    for shard in own.live:
        place = view.owner(slot_of(own.tag(shard)))
        if place is not None:
            found.setdefault(place, []).append(shard)
    return found


def spread(own: Namespace, view: View, there: Mapping[ServerPlace, Sequence[int]]) -> Iterator[Finding]:
    masters = view.masters
    if not masters:
        return
    lies = [f"{', '.join(map(str, there[place]))} on {place}" for place in masters if place in there]
    value = "; ".join([f"{len(own.live)}: {lies[0]}", *lies[1:]]) if lies else f"{len(own.live)}, no node has them"
    most, least = (choose(masters, key=lambda place: len(there.get(place, ()))) for choose in (max, min))
    fair = -(-len(own.live) // len(masters))
    if len(there.get(most, ())) > fair:
        shard = there[most][-1]
        advice = (
            f"{most} does more than its share: move slot {slot_of(own.tag(shard))} to {least} (`redis-cli --cluster reshard`)"
        )
        yield Finding("shards", value, "warn", advice)
    else:
        yield Finding("shards", value)


def moving(visits: Visits, own: Namespace, view: View, told: Mapping[Any, ServerTold]) -> Iterator[Finding]:
    """A slot that was left half here, half there pauses its shard; a migration that goes on ends by itself."""
    shards = {slot_of(own.tag(shard)): shard for shard in own.live}
    moves = [move for move in _moves(told) if move.slot in shards]
    left = _keys_left(visits, own, view, moves)
    for move in moves:
        name, target = f"slot {move.slot} of shard {shards[move.slot]}", view.name(move.target) if move.target else "nobody"
        if move.source is None:
            advice = f"if nobody moves it any more: `redis-cli --cluster fix {target}`"
            yield Finding("moving", f"{name} is IMPORTING on {target}, and no node gives it", "warn", advice)
            continue
        source = view.name(move.source)
        value, counts = f"{name} is MIGRATING from {source} to {target}", left.get(move.slot, ())
        if counts and counts[1] < counts[0]:
            yield Finding(
                "moving", f"{value}, {plural(counts[1], 'key')} to go", "warn", "its shard waits until they are there"
            )
        else:
            stuck = f", and none of {plural(counts[0], 'key')} went in {PAUSE:.0f} s" if counts else ""
            advice = f"its shard waits: if nobody moves it any more, `redis-cli --cluster fix {source}`"
            yield Finding("moving", value + stuck, "bad", advice)


def _moves(told: Mapping[Any, ServerTold]) -> list[SlotMove]:
    """From what each node says of itself."""
    sources: dict[int, tuple[str, str]] = {}
    targets: dict[int, str] = {}
    for each in told.values():
        nodes = each.answers.get("nodes")
        for row in rows(nodes) if isinstance(nodes, bytes) else ():
            for slot, leaves, other in row.moving if "myself" in row.flags and "master" in row.flags else ():
                if leaves:
                    sources[slot] = row.id, other
                else:
                    targets[slot] = row.id
    found = [SlotMove(slot, source, target) for slot, (source, target) in sources.items()]
    found += [SlotMove(slot, None, target) for slot, target in targets.items() if slot not in sources]
    return sorted(found, key=lambda move: move.slot)


def _keys_left(visits: Visits, own: Namespace, view: View, moves: Sequence[SlotMove]) -> dict[int, tuple[int, int]]:
    """How many keys of each slot are with the node that gives it, and a moment later. Who does not say is left out."""
    given: dict[ServerPlace, list[int]] = {}
    for move in moves:
        place = view.places.get(move.source or "")
        if place is not None:
            given.setdefault(place, []).append(move.slot)

    def count(look: Look, told: ServerTold) -> None:
        own_slots = given[next(place for place in given if str(place) == look.place)]
        questions = [("CLUSTER", "COUNTKEYSINSLOT", slot) for slot in own_slots]
        first = look.ask_all(questions)
        time.sleep(PAUSE)
        told.answers["counts"] = dict(zip(own_slots, zip(first, look.ask_all(questions), strict=True), strict=True))

    found = visits.all([Stop(own.address, place) for place in given], count)
    return {slot: counts for told in found for slot, counts in told.answers.get("counts", {}).items()}
