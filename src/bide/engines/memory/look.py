"""Looking without touching."""

import heapq
from collections.abc import Collection, Iterator, Sequence

from msgspec.structs import replace

from bide.engines.base import Ref, Scanned, Stored, Window, total
from bide.engines.memory.store import Store
from bide.engines.memory.topic import DEAD, LEASED, PENDING, Message, Topic
from bide.engines.stored import records_of
from bide.errors import BadOption
from bide.types import State, Stats

Place = tuple[int, int, int]  # of a message in a scan: pending, leased or dead; due time, or when it died; order of sending


def get(store: Store, refs: Sequence[Ref], now: int | None) -> list[Stored | None]:
    with store.alone(), store:
        at = store.now(now)
        found = [store.find(ref, at) for ref in refs]
        return [None if message is None else _with_traces(message.stored(at, store.wall), message) for message in found]


def _with_traces(stored: Stored, message: Message) -> Stored:
    return replace(stored, traces=records_of(message.traces)) if message.traces else stored


def scan(store: Store, name: str, state: State | None, limit: int, after: str | None, now: int | None) -> Scanned:
    begin = _read_mark(after)
    with store.alone(), store:
        at = store.now(now)
        topic = store.topics.get(name)
        places = _places(topic, state, at, store.wall) if topic is not None else iter(())
        page = heapq.nsmallest(limit + 1, (place for place in places if begin is None or place[0] > begin), key=_place)
        more = len(page) > limit
        shown = [message.stored(at, store.wall) for _, message in page[:limit]]
        return Scanned(shown, ".".join(map(str, page[limit - 1][0])) if more else None)


def _place(entry: tuple[Place, Message]) -> Place:
    return entry[0]


def _places(topic: Topic, state: State | None, now: int, wall: int) -> Iterator[tuple[Place, Message]]:
    if state in (None, "scheduled", "ready"):
        for due, entry, message in topic.entries():
            if state is None or message.ready(now, wall) == (state == "ready"):
                yield (PENDING, due, entry), message
    if state in (None, "leased"):
        for message in topic.leased.values():
            yield (LEASED, message.due, message.entry), message
    if state in (None, "dead"):
        for message in topic.dead.values():
            yield (DEAD, message.died, message.entry), message


def _read_mark(after: str | None) -> Place | None:
    if after is None:
        return None
    try:
        state, due, entry = map(int, after.split("."))
    except ValueError:
        raise BadOption("after is not the mark of a page: give back a page's own .after, or None for the first.") from None
    return state, due, entry


def stats(store: Store, name: str | None, but: Collection[str], window: Window | None, now: int | None) -> Stats:
    with store.alone(), store:
        at = store.now(now)
        if name is not None:
            topic = store.topics.get(name)
            topics = [] if topic is None else [topic]
        else:
            topics = [topic for topic in store.topics.values() if topic.name not in but]
        each = {topic.name: _with_timeline(topic, topic.stats(at, store.wall), window) for topic in topics}
        return total(each.values(), each if name is None else {}, 0 if window is None else window.parts)


def _with_timeline(topic: Topic, stats: Stats, window: Window | None) -> Stats:
    if window is None:
        return stats
    counts = [0] * window.parts
    length = window.end - window.start
    for due, _, _ in topic.entries():
        if window.start <= due < window.end:
            counts[(due - window.start) * window.parts // length] += 1
    return replace(stats, timeline=counts)
