"""The ladder of RabbitMQ: whatever the delay and the topic, a message takes the steps that add up to it, each once."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bide.engines.rabbitmq.ladder import DIGITS, MAX_DELAY, STEPS, TICK, QueueNames, routing_key, ticks

NAMES = QueueNames("shop")
QUEUES = {NAMES.wait(step): step for step in STEPS}
AWKWARD = ("s4", "s4.s2", "b.3", "a", "b.3.a.2", "@", "mail", "x" * 128, "A.b-c_d", "s0.@.mail")


def _matches(pattern: str, key: str) -> bool:
    """As a topic exchange has it: # stands for any number of words, * for one."""
    text = re.escape(pattern).replace(r"\*", r"[^.]+")
    text = text.replace(r"\.\#", r"(\.[^.]+)*").replace(r"\#\.", r"([^.]+\.)*").replace(r"\#", ".*")
    return re.fullmatch(text, key) is not None


def _bound() -> dict[str, list[tuple[str, str]]]:
    found: dict[str, list[tuple[str, str]]] = {}
    for exchange, pattern, queue in NAMES.bindings():
        found.setdefault(exchange, []).append((pattern, queue))
    for exchange, pattern in NAMES.arrivals():
        found.setdefault(exchange, []).append((pattern, NAMES.topics))
    return found


BOUND = _bound()


def _way(key: str) -> list[str]:
    """The queues on the way of a message, whose exchanges must each know one way on."""
    way, exchange = list[str](), NAMES.enter
    while exchange != NAMES.topics:
        [place] = [place for pattern, place in BOUND[exchange] if _matches(pattern, key)]
        if place in QUEUES:
            way.append(place)
            exchange = NAMES.after(QUEUES[place].digit)
        else:
            exchange = place
    return way


@given(st.one_of(st.integers(0, 5_000), st.integers(0, MAX_DELAY)), st.sampled_from(AWKWARD))
@example(MAX_DELAY, "x" * 128)
@example(999, "s4.s2")
@example(1, "@")
def test_the_steps_of_a_delay_add_up_to_it(delay: int, topic: str) -> None:
    way = _way(routing_key(delay, topic))
    assert sum(QUEUES[queue].ms for queue in way) == ticks(delay)
    assert 0 <= ticks(delay) - delay < TICK
    assert len({QUEUES[queue].digit for queue in way}) == len(way)


@given(st.integers(0, MAX_DELAY), st.sampled_from(AWKWARD), st.sampled_from(AWKWARD))
def test_a_message_comes_to_its_own_topic_only(delay: int, topic: str, other: str) -> None:
    key = routing_key(delay, topic)
    assert _matches(NAMES.to_topic(topic), key)
    assert _matches(NAMES.to_topic(other), key) == (topic == other)


def test_a_key_has_room_for_the_longest_delay_and_topic() -> None:
    assert len(routing_key(MAX_DELAY, "x" * 128)) <= 255


def test_a_message_of_whole_seconds_takes_no_step_of_a_fraction() -> None:
    assert routing_key(20_000, "mail") == "s4.s2.@.mail"
    assert routing_key(20_200, "mail") == "s4.s2.b.3.a.2.@.mail"


def test_what_leads_nowhere_is_kept_except_where_its_sender_is_told() -> None:
    kept = {name for name, _, arguments in NAMES.exchanges() if arguments.get("alternate-exchange") == NAMES.lost}
    assert kept == {NAMES.topics, *(NAMES.after(digit) for digit in DIGITS)}


def test_queues_keep_what_they_dead_letter() -> None:
    for name, arguments in NAMES.queues():
        if name in QUEUES:
            assert (arguments["x-dead-letter-strategy"], arguments["x-overflow"]) == ("at-least-once", "reject-publish")
            assert arguments["x-message-ttl"] == QUEUES[name].ms
            assert arguments["x-queue-type"] == "quorum"


@pytest.mark.parametrize("owner", ["4f2a"])
def test_a_parked_message_leads_to_its_topic(owner: str) -> None:
    for topic in AWKWARD:
        key = NAMES.parking(owner, topic)
        assert _matches(NAMES.parking(owner), key)
        assert _matches(NAMES.to_topic(topic), key)
        assert not any(_matches(pattern, key) for pattern, _ in BOUND[NAMES.enter])


def test_a_delay_that_is_too_long_climbs_the_whole_ladder() -> None:
    assert routing_key(MAX_DELAY + TICK, "mail") == routing_key(MAX_DELAY, "mail")
