"""An option that no engine reads goes with the message in a header, whichever way it is sent."""

from functools import partial
from typing import Any

import pytest

from bide import BadOption, Delivery, Outgoing, Queue
from bide.core import options
from bide.core.send_options import CARRIED, Carried
from bide.queue.bound import TaskMessages
from bide.queue.tasks.definition import Definition

HEADERS = {"by": "Ada"}


class Noted(Outgoing, frozen=True, kw_only=True):
    """One of many that has the option."""

    note: str | None = None


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Any:
    """A queue whose release has one more option."""
    monkeypatch.setitem(CARRIED, "note", Carried("bide-note", partial(options.text, name="note", longest=8)))
    with Queue("memory://") as queue:
        yield queue


def received(queue: Queue) -> list[Delivery]:
    return list(queue.receive("t", limit=10))


def test_it_reaches_the_delivery_of_a_send_beside_the_headers_of_the_sender(queue: Queue) -> None:
    queue.session.put(queue.session.setup.envelope.message("t", 1, headers=HEADERS, note="x"))
    assert [each.headers for each in received(queue)] == [{**HEADERS, "bide-note": "x"}]
    assert HEADERS == {"by": "Ada"}


def test_each_of_many_has_its_own(queue: Queue) -> None:
    queue.send_many("t", [Noted(1, note="x"), Noted(2, headers=HEADERS, note="y"), Noted(3), Outgoing(4), 5])
    found = {each.body: each.headers for each in received(queue)}
    assert found == {1: {"bide-note": "x"}, 2: {**HEADERS, "bide-note": "y"}, 3: {}, 4: {}, 5: {}}


def test_a_send_of_a_task_has_it(queue: Queue) -> None:
    def handle(n: int) -> None: ...

    given: Any = {"note": "x"}
    sends = TaskMessages(Definition(handle, topic="t"), queue.session.setup.envelope)
    queue.session.put(sends.one((1,), {}, given))
    assert [each.headers for each in received(queue)] == [{"bide-note": "x"}]


def test_without_it_there_is_no_header(queue: Queue) -> None:
    assert not queue.session.setup.envelope.message("t", 1, note=None).headers


def test_it_is_checked(queue: Queue) -> None:
    with pytest.raises(BadOption, match="note is"):
        queue.session.setup.envelope.message("t", 1, note="too long a note")
    with pytest.raises(BadOption, match="Item 1: note is"):
        queue.send_many("t", [1, Noted(2, note="")])


def test_its_header_counts_for_no_limit_of_the_sender(queue: Queue) -> None:
    full, envelope = {"h": "x" * 8_191}, queue.session.setup.envelope
    assert envelope.message("t", 1, headers=full, note="x", depends_on=["an-id"]).headers.keys() > {"h", "bide-note"}
    with pytest.raises(BadOption, match="The headers are 8,193 bytes"):
        envelope.message("t", 1, headers={"h": "x" * 8_192}, note="x", depends_on=["an-id"])
