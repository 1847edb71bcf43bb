"""How shards are laid over a Cluster, and what its nodes and Sentinels tell."""

from collections import Counter

import pytest

from bide.engines.redis.topology import SLOTS, ServerPlace, SlotSpan, master_of, moved, slot_of, spans, well_placed

A, B, C = (ServerPlace("10.0.0.1", port) for port in (1, 2, 3))
THREE = [SlotSpan(0, 5460, A, ()), SlotSpan(5461, 10922, B, ()), SlotSpan(10923, 16383, C, ())]
SCATTERED = [SlotSpan(first, first + 1023, (A, B, C)[first // 1024 % 3], ()) for first in range(0, SLOTS, 1024)]


@pytest.mark.parametrize("count", [None, 1, 2, 3, 4, 6, 7, 12, 64])
@pytest.mark.parametrize("known", [THREE, SCATTERED], ids=["whole", "scattered"])
@pytest.mark.parametrize("namespace", ["bide", "shop", "a.b-c_9"])
def test_shards_lie_evenly_over_the_masters_and_their_slots(count: int | None, known: list[SlotSpan], namespace: str) -> None:
    made = well_placed(namespace, 0, count, known)
    tags = [made.tag(namespace, number) for number in made.numbers]
    assert len(tags) == len(set(tags)) == (count or 3)
    assert tags[0] == f"{namespace}:0"
    slots = [slot_of(tag) for tag in tags]
    masters = Counter(span.master for slot in slots for span in known if span.first <= slot <= span.last)
    assert sum(masters.values()) == len(tags)
    assert max(masters.values()) - min(masters[each] for each in (A, B, C)) <= 1
    assert len(set(slots)) == len(slots)


def test_a_node_is_named_as_it_names_itself_or_as_it_was_asked() -> None:
    told = [[5461, 16383, [b"", 7001, b"id"], [b"?", 7003, b"id"]], [0, 5460, [b"h.example", 7000, b"id"], [None, 7002, b"id"]]]
    first, second = spans(told, A)
    assert (first.first, first.master, first.replicas) == (0, ServerPlace("h.example", 7000), (ServerPlace(A.host, 7002),))
    assert (second.first, second.master, second.replicas) == (5461, ServerPlace(A.host, 7001), (ServerPlace(A.host, 7003),))


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("MOVED 99 10.0.0.9:7000", ServerPlace("10.0.0.9", 7000)),
        ("99 ::1:7000", ServerPlace("::1", 7000)),
        ("MOVED 99 :7000", ServerPlace(A.host, 7000)),
        ("MOVED 99 h.example:7000", ServerPlace("h.example", 7000)),
    ],
)
def test_moved_tells_where_to(text: str, place: ServerPlace) -> None:
    assert moved(Exception(text), A) == (99, place)


def test_what_a_sentinel_does_not_know_is_no_master() -> None:
    assert master_of([b"ip", b"10.0.0.1", b"port", b"7000", b"config-epoch", b"12"]) == (12, ServerPlace("10.0.0.1", 7000))
    assert master_of([b"name", b"main"]) is None
