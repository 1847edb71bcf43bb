"""Who may run: the bounds hold, whatever the messages are that a claim brings."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bide.errors import BadOption
from bide.worker.slots import BUSY, Slots


def places(
    topics: Sequence[str],
    in_threads: Sequence[str] = (),
    *,
    concurrency: int = 10,
    threads: int = 10,
    slots: Mapping[str, int] | None = None,
    limited: Mapping[str, int] | None = None,
) -> Slots:
    return Slots(
        list(topics), list(in_threads), concurrency=concurrency, threads=threads, slots=slots or {}, limited=limited or {}
    )


def fill(here: Slots, choose: Callable[[Sequence[str]], str]) -> Counter[str]:
    """Take whatever may be taken, of the topic that is chosen of those asked."""
    held: Counter[str] = Counter()
    while asks := [ask for line in range(len(here.groups)) if (ask := here.ask(line)).limit]:
        for _ in range(asks[0].limit):
            topic = choose(asks[0].topics)
            here.take(topic)
            held[topic] += 1
    return held


def test_one_topic_alone_may_hold_all_places() -> None:
    assert places(["a"]).ask(0) == (("a",), 10)


def test_beside_others_one_topic_holds_nine_tenths_at_most() -> None:
    here = places(["a", "b"], concurrency=100)

    assert here.ask(0) == (("a", "b"), 90)
    for _ in range(90):
        here.take("a")

    assert here.ask(0) == (("b",), 10)


def test_nine_tenths_are_never_rounded_up() -> None:
    for concurrency in range(2, 200):
        held = fill(places(["a", "b"], concurrency=concurrency), lambda topics: topics[0])

        assert 0.9 * concurrency - 1 < held["a"] <= 0.9 * concurrency
        assert held["b"] == concurrency - held["a"]


def test_a_single_place_is_for_all() -> None:
    here = places(["a", "b"], concurrency=1)

    assert here.ask(0) == (("a", "b"), 1)
    here.take("b")
    assert here.ask(0).limit == 0
    here.give_back("b")
    assert here.ask(0) == (("a", "b"), 1)


def test_slots_are_kept_while_others_want_everything() -> None:
    here = places(["a", "b", "vip"], slots={"vip": 3})

    held = fill_all_but(here, "vip")

    assert held == 7
    assert here.ask(0) == (("vip",), 3)


def test_a_topic_with_slots_uses_shared_places_too() -> None:
    held = fill(places(["a", "vip"], concurrency=23, slots={"vip": 3}), lambda topics: topics[-1])

    assert held["vip"] == 3 + 18
    assert held.total() == 23


def test_sync_handlers_are_bounded_by_threads() -> None:
    here = places(["a", "s"], ["s"], concurrency=10, threads=4)

    assert here.ask(1) == (("s",), 4)
    for _ in range(3):
        here.take("s")
    assert here.ask(1) == (("s",), 1)
    assert here.ask(0) == (("a",), 7)


def test_one_sync_topic_leaves_a_thread_to_the_others() -> None:
    held = fill(places(["s", "t"], ["s", "t"], concurrency=100, threads=4), lambda topics: topics[0])

    assert held == {"s": 3, "t": 1}


def test_slots_of_a_sync_topic_keep_threads_as_well() -> None:
    here = places(["s", "t", "vip"], ["s", "t", "vip"], concurrency=10, threads=4, slots={"vip": 2})

    held = fill_all_but(here, "vip")

    assert held == 2
    assert here.ask(0) == (("vip",), 2)


def test_slots_for_more_sync_handlers_than_there_are_threads_are_refused() -> None:
    with pytest.raises(BadOption, match="threads"):
        places(["s", "a"], ["s"], concurrency=10, threads=2, slots={"s": 3})


def test_slots_that_leave_nothing_for_the_others_are_refused() -> None:
    with pytest.raises(BadOption, match="leave at least one"):
        places(["a", "vip"], concurrency=5, slots={"vip": 5})


def test_slots_may_be_all_there_is_when_every_topic_has_some() -> None:
    held = fill(places(["a", "vip"], concurrency=5, slots={"vip": 3, "a": 2}), lambda topics: topics[0])

    assert held == {"vip": 3, "a": 2}


def test_slots_for_a_topic_that_is_not_served_are_refused() -> None:
    with pytest.raises(BadOption, match="'b'"):
        places(["a"], slots={"b": 1})


@pytest.mark.parametrize("number", [0, -1, 1.5, True, "3", None])
def test_slots_are_whole_numbers_from_one(number: object) -> None:
    with pytest.raises(BadOption, match="slots"):
        places(["a", "b"], slots={"a": number})  # type: ignore[dict-item]


def fill_all_but(here: Slots, spared: str) -> int:
    """Take all that may be taken without a message of one topic; how many that is."""
    taken = 0
    while True:
        asks = [here.ask(line) for line in range(len(here.groups))]
        wanted = [ask for ask in asks if ask.limit and set(ask.topics) - {spared}]
        if not wanted:
            return taken
        here.take(next(topic for topic in wanted[0].topics if topic != spared))
        taken += 1


@st.composite
def all_sorts(draw: st.DrawFn) -> tuple[list[str], list[str], int, int, dict[str, int]]:
    topics = [f"t{number}" for number in range(draw(st.integers(1, 6)))]
    in_threads = [topic for topic in topics if draw(st.booleans())]
    slots = {topic: draw(st.integers(1, 5)) for topic in topics if draw(st.integers(0, 3)) == 0}
    concurrency = sum(slots.values()) + draw(st.integers(1, 40))
    kept = sum(number for topic, number in slots.items() if topic in in_threads)
    return topics, in_threads, concurrency, kept + draw(st.integers(1, 20)), slots


@settings(deadline=None, max_examples=120)
@given(all_sorts(), st.data())
def test_every_bound_holds_however_a_claim_falls(
    plan: tuple[list[str], list[str], int, int, dict[str, int]], data: st.DataObject
) -> None:
    topics, in_threads, concurrency, threads, slots = plan
    here = places(topics, in_threads, concurrency=concurrency, threads=threads, slots=slots)
    shared = concurrency - sum(slots.values())
    held: Counter[str] = Counter()
    for _ in range(data.draw(st.integers(1, 12))):
        for line in data.draw(st.permutations(range(len(here.groups)))):
            ask = here.ask(line)
            for _ in range(data.draw(st.integers(0, ask.limit))):
                topic = data.draw(st.sampled_from(ask.topics))
                here.take(topic)
                held[topic] += 1

            assert held.total() <= concurrency
            assert sum(held[topic] for topic in in_threads) <= threads
            for topic in topics:
                of_shared = held[topic] - slots.get(topic, 0)
                assert len(topics) == 1 or shared == 1 or of_shared <= 0.9 * shared
            for number, topic in enumerate(slots):
                assert here.groups[number] == (topic,)
                assert here.ask(number).limit == max(0, slots[topic] - held[topic])
        for topic in topics:
            for _ in range(data.draw(st.integers(0, held[topic]))):
                here.give_back(topic)
                held[topic] -= 1


@settings(deadline=None, max_examples=80)
@given(all_sorts(), st.randoms(use_true_random=False))
def test_what_is_given_back_can_be_taken_again(
    plan: tuple[list[str], list[str], int, int, dict[str, int]], dice: Random
) -> None:
    topics, in_threads, concurrency, threads, slots = plan
    here = places(topics, in_threads, concurrency=concurrency, threads=threads, slots=slots)
    fresh = [here.ask(line) for line in range(len(here.groups))]

    for topic, number in fill(here, dice.choice).items():
        for _ in range(number):
            here.give_back(topic)

    assert [here.ask(line) for line in range(len(here.groups))] == fresh


@settings(deadline=None, max_examples=80)
@given(all_sorts())
def test_whoever_may_run_is_asked_for(plan: tuple[list[str], list[str], int, int, dict[str, int]]) -> None:
    topics, in_threads, concurrency, threads, slots = plan
    here = places(topics, in_threads, concurrency=concurrency, threads=threads, slots=slots)

    asked = {topic for line in range(len(here.groups)) if (ask := here.ask(line)).limit for topic in ask.topics}

    assert asked == set(topics)


def test_a_batch_takes_one_place_also_while_it_gathers() -> None:
    here = Slots(["likes", "b"], [], concurrency=10, threads=10, slots={}, batches={"likes": 100})
    likes = here.groups.index(("likes",))
    assert here.groups[1 - likes] == ("b",)

    assert here.ask(likes) == (("likes",), 900)  # nine tenths of the places
    here.take("likes", 30)
    assert here.ask(likes) == (("likes",), 70 + 800)
    here.begin_batch("likes", 30)
    assert here.ask(likes) == (("likes",), 800)
    here.take("likes", 5)
    here.give_back("likes")  # one that can't be read
    assert here.ask(likes) == (("likes",), 96 + 700)
    here.end_batch("likes")
    for _ in range(4):
        here.give_back("likes")
    assert here.ask(likes) == (("likes",), 900)


def test_the_slots_of_a_batch_task_are_for_batches() -> None:
    here = Slots(["likes", "b"], ["likes"], concurrency=10, threads=3, slots={"likes": 2}, batches={"likes": 100})

    kept, shared = [group for group, topics in enumerate(here.groups) if topics == ("likes",)]
    assert here.ask(kept) == (("likes",), 200)
    assert here.ask(shared) == (("likes",), 100)  # one thread is left
    here.take("likes", 200)
    assert here.ask(kept).limit == 0
    here.take("likes", 100)
    assert here.ask(shared).limit == 0


@given(st.lists(st.tuples(st.sampled_from(["claim", "drop", "begin", "end"]), st.integers(1, 40)), max_size=80))
def test_batches_never_run_beyond_their_places(steps: list[tuple[str, int]]) -> None:
    size, concurrency = 10, 4
    here = Slots(["likes"], [], concurrency=concurrency, threads=1, slots={}, batches={"likes": size})
    gathered = running = 0
    for what, count in steps:
        if what == "claim":
            claimed = min(count, here.ask(0).limit)
            here.take("likes", claimed)
            gathered += claimed
        elif what == "drop" and gathered:
            here.give_back("likes")
            gathered -= 1
        elif what == "begin" and gathered >= size:
            here.begin_batch("likes", size)
            gathered, running = gathered - size, running + 1
        elif what == "end" and running:
            here.end_batch("likes")
            running -= 1
        assert running + -(-gathered // size) <= concurrency
        assert here.ask(0).limit == (concurrency - running) * size - gathered


def test_a_limited_topic_is_looked_at_again_while_it_is_to_be_told_what_may_run() -> None:
    here = places(["sms"], limited={"sms": 10})

    assert here.held_up() is None
    here.take("sms")
    assert here.held_up() == BUSY
    here.passed("sms", 1, 5.0)
    assert 4.0 < (here.held_up() or 0) <= 5.0


def test_a_limited_topic_whose_time_comes_between_two_looks_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    here = places(["sms"], limited={"sms": 10})
    here.take("sms")
    here.passed("sms", 0, 5.0)
    here.give_back("sms")

    now = 104.999
    assert here.ask(0).limit == 0
    now = 105.0
    assert here.held_up() == 0.0
    assert here.held_back() == [0]

    assert here.ask(0).limit == 1
    assert here.held_up() is None
    assert here.held_back() == []


def test_a_limited_topic_is_looked_at_every_few_seconds_as_the_servers_clock_may_jump(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    here = places(["sms"], limited={"sms": 10})
    over = now + 57.0
    looks = 0
    while now < over:
        assert here.ask(0).limit == 1
        here.take("sms")
        here.passed("sms", 0, over - now)
        here.give_back("sms")
        assert here.ask(0).limit == 0
        wait = here.held_up()
        assert wait is not None
        now, looks = now + wait, looks + 1

    assert looks == 12  # each takes five seconds, and the last is in time
    assert now == over


def test_a_limited_topic_with_no_room_for_other_reasons_is_not_asked_for_again_and_again() -> None:
    here = places(["sms"], in_threads=["sms"], limited={"sms": 10})
    here.take("sms")
    here.passed("sms", 0, 0.0)
    here.give_back("sms")
    here.place_left("sms")
    here.without_threads = True

    assert here.held_up() == 0.0
    assert here.ask(0).limit == 0
    assert here.held_up() is None


def test_a_message_that_may_not_run_makes_no_room() -> None:
    for wait in (5.0, 0.0):  # until an instant, or until there is a place
        here = places(["sms"], limited={"sms": 10})

        here.take("sms")
        here.passed("sms", 0, wait)
        here.give_back("sms")

        assert here.ask(0).limit == 0


def test_a_place_that_was_left_makes_room() -> None:
    here = places(["sms"], limited={"sms": 10})

    here.take("sms", 2)
    here.passed("sms", 1, 0.0)
    here.give_back("sms")
    assert here.ask(0).limit == 0
    here.place_left("sms")
    here.give_back("sms")

    assert here.ask(0).limit == 1


def test_a_message_that_goes_untold_does_not_hold_up_its_topic() -> None:
    here = places(["sms"], limited={"sms": 10})
    here.take("sms")
    here.passed("sms", 0, 0.0)
    here.place_left("sms")

    here.take("sms")
    assert here.ask(0).limit == 0
    here.give_back("sms")

    assert here.ask(0).limit == 1
