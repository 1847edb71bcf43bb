"""Either release reads, changes and ends what the other one has stored."""

from typing import Any

from tests.upgrade.release import Release


def test_what_one_release_has_stored_the_other_reads_and_ends(pair: tuple[Release, Release], url: str) -> None:
    writer, reader = pair
    writer.do("send", url=url)
    seen = writer.do("look", url=url)
    assert {topic: len(stored) for topic, stored in seen["stored"].items()} == {
        "t": 15, "many": 500, "failed": 1, "tried": 1, "held": 1, "paused": 1,
    }  # fmt: skip
    assert reader.do("look", url=url) == seen
    told = reader.do("use", url=url)
    received = told.pop("received t")
    assert sorted(received) == ["0", "0", "1", "1", "2", "None"]
    assert sorted(told.pop("received many"), key=int) == [str(n) for n in range(500)]
    assert told == {
        "cancelled": ["CANCELLED"] * 3,
        "moved": ["MOVED"] * 2,
        "by key": ["kept", "postponed", "replaced"],
        "again": [""] * 3,
        "requeued": ["1"],
        "received failed": ["1"],
        "tried": ["once"],
        "paused": ["1"],
    }
    left = writer.do("look", url=url)
    assert left == reader.do("look", url=url)
    assert {topic: len(stored) for topic, stored in left["stored"].items()} == {"t": 6, "tried": 1, "held": 1, "paused": 1}


def test_a_message_that_one_release_held_when_it_died_comes_back_to_the_other(pair: tuple[Release, Release], url: str) -> None:
    first, second = pair
    first.do("send", url=url)
    held = first.do("hold", url=url, lease=0.2)
    assert len(held) == 3
    seen: list[Any] = []
    while len(seen) < len(held):
        seen += [each for each in second.do("hold", url=url, lease=600) if each in held]
    found = {each["id"]: each for each in first.do("look", url=url)["stored"]["t"] if each["id"] in held}
    assert {(each["state"], each["attempt"]) for each in found.values()} == {("leased", 2)}
