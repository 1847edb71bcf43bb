"""How much room a topic has left, for one sender."""

import time

import pytest

from bide.queue.topic_rules import TopicRoom

MOST = 10


def test_what_was_sent_since_the_count_takes_room() -> None:
    room = TopicRoom()
    room.counted(4, room.begin(), 0.0, MOST)
    assert room.take(1, 5, MOST) == 5
    assert room.take(2, 2, MOST) == 0
    assert room.take(1, 2, MOST) == 1
    room.done(5, 3)  # two of them were not stored
    assert (room.pending, room.take(1, 9, MOST)) == (8, 2)


def test_what_is_under_way_while_it_is_counted_counts_too() -> None:
    room = TopicRoom()
    room.counted(0, room.begin(), 0.0, MOST)
    room.take(3, 3, MOST)
    begun = room.begin()
    room.take(2, 2, MOST)
    room.done(3, 3)
    room.counted(0, begun, 0.0, MOST)  # it saw none of them
    assert room.pending == 5
    room.done(2, 2)
    room.counted(5, room.begin(), 0.0, MOST)
    assert room.pending == 5


def test_counts_at_once_are_no_more_than_one() -> None:
    room = TopicRoom()
    room.counted(0, room.begin(), 0.0, MOST)
    room.take(3, 3, MOST)
    room.done(3, 3)
    first, second = room.begin(), room.begin()
    room.counted(3, first, 0.0, MOST)
    room.counted(3, second, 0.0, MOST)
    assert room.pending == 3


def test_a_slow_count_does_not_undo_a_later_one() -> None:
    room = TopicRoom()
    slow = room.begin()
    room.counted(0, slow, 0.0, MOST)
    room.take(3, 3, MOST)
    room.done(3, 3)
    room.counted(3, room.begin(), 0.0, MOST)
    room.counted(0, slow, 0.0, MOST)
    assert room.pending == 3


def test_a_room_that_has_filled_up_since_the_count_is_counted_again_a_second_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    room = TopicRoom()
    room.counted(0, room.begin(), 0.0, MOST)
    room.take(4, 4, MOST)
    now += 1.5
    assert not room.is_stale()  # it is far from full
    room.take(1, 1, MOST)
    assert room.is_stale()


def test_a_room_that_is_full_is_counted_no_more_often_than_a_slow_count_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    room = TopicRoom()
    room.counted(0, room.begin(), 0.5, MOST)
    room.take(10, 10, MOST)
    now += 9.5
    assert not room.is_stale()
    now += 1.0
    assert room.is_stale()


def test_of_counts_at_once_the_one_counts_that_has_seen_least_of_what_is_on_its_way() -> None:
    room = TopicRoom()
    one, other = room.begin(), room.begin()
    room.counted(0, one, 0.0, 20)
    assert room.take(1, 18, 20) == 18
    room.counted(5, other, 60.0, 20)  # it took a minute, and has seen some of these
    assert room.pending == 18
    # Then a count that began later tells of others
    room.done(18, 18)
    room.counted(19, room.begin(), 0.0, 20)
    assert room.pending == 19
