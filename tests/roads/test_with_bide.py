"""What bide does where the other ways lose messages or delay them, on each of its engines."""

from pathlib import Path

import pytest

from bide import Queue
from examples.roads import with_bide
from tests.roads.conftest import Start


@pytest.fixture(params=["redis", "postgres", "rabbitmq", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Of a queue that outlives the process."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'roads.db'}"
    fixture = "rabbitmq_shared_url" if request.param == "rabbitmq" else f"{request.param}_url"
    return str(request.getfixturevalue(fixture))


@pytest.mark.slow  # a lease is 15 seconds
def test_what_a_killed_consumer_had_in_hand_comes_back(url: str, start: Start) -> None:
    with Queue(url) as queue:
        # Given a consumer that has taken a message
        with_bide.send(queue, "comes back", 0)
        killed = start("with_bide", url, "--stuck")
        assert killed.handled() == "comes back"
        # When it is killed, and another one is there
        killed.kill()
        other = start("with_bide", url)
        # Then the other one gets it, when its lease is over
        assert other.handled() == "comes back"


def test_what_falls_due_while_nobody_is_there_comes_later(url: str, start: Start) -> None:
    with Queue(url) as queue:
        with_bide.send(queue, "waits", 0.001)
        assert start("with_bide", url).handled() == "waits"


def test_equal_messages_are_two(url: str, start: Start) -> None:
    with Queue(url) as queue:
        for _ in range(2):
            with_bide.send(queue, "remind ann", 0.001)
        consumer = start("with_bide", url)
        assert [consumer.handled(), consumer.handled()] == ["remind ann", "remind ann"]


def test_a_message_in_hand_is_given_to_nobody_else(url: str, start: Start) -> None:
    with Queue(url) as queue:
        # Given a consumer that works on a message, and another one
        with_bide.send(queue, "in hand", 0)
        assert start("with_bide", url, "--stuck").handled() == "in hand"
        other = start("with_bide", url)
        # Then the other one gets the next message only
        with_bide.send(queue, "next", 0)
        assert other.handled() == "next"
