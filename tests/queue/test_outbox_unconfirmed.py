"""What may have arrived at an engine that remembers no operations: it is not sent again at once, nor told as cancelled."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bide import BideError, CancelResult, OutcomeUnknown, Queue, QueueFull, TooLarge, Unavailable
from bide.engines.base import NewMessage
from bide.engines.each import keep_each
from tests.queue.test_outbox_handed_on import connected, outbox_of

MANY = 40


class CutOff:
    """The connection is cut in the midst of the first call: all its messages arrive, but for the first one if an error of it is
    given. No further call arrives.
    """

    def __init__(self, queue: Queue, monkeypatch: pytest.MonkeyPatch, first: BideError | None) -> None:
        engine = outbox_of(queue)._target
        self.calls = 0
        self._put, self._first = engine.put, first
        monkeypatch.setattr(engine, "put", self.put)

    def put(self, messages: Sequence[NewMessage], **_: Any) -> Any:
        self.calls += 1
        if self.calls > 1:
            raise Unavailable("It is away.")
        sent = self._put(messages if self._first is None else messages[1:])
        failed: list[BideError | None] = [self._first] + [OutcomeUnknown("It was cut.") for _ in messages[1:]]
        answers = [*(sent[:1] if self._first is None else [None]), *(None for _ in messages[1:])]
        raise keep_each(OutcomeUnknown("It was cut. This was a part of the batch.", answers=answers), failed)


@pytest.mark.parametrize("first", [None, TooLarge("No."), QueueFull("It is full.")], ids=lambda each: type(each).__name__)
def test_a_message_that_may_be_in_the_queue_is_never_told_as_cancelled(
    modest_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: BideError | None
) -> None:
    """Beside one that was sent, one that was refused, or one for which there was no room."""
    store = f"sqlite:///{tmp_path}/app.db"
    with Queue(modest_url, outbox=store) as queue:
        queue.open()
        with connected(store) as own:
            ids = [each.id for each in queue.send_many("t", range(MANY), connection=own)]
            own.commit()
        CutOff(queue, monkeypatch, first)
        with pytest.raises((OutcomeUnknown, QueueFull, Unavailable)):
            queue.relay(wait=False)
        assert [queue.cancel(id) for id in ids[1:]] == [CancelResult.RUNNING] * (MANY - 1)


def test_what_was_not_tried_beside_it_is_cancelled(modest_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = f"sqlite:///{tmp_path}/app.db"
    with Queue(modest_url, outbox=store) as queue:
        queue.open()
        with connected(store) as own:
            ids = [each.id for each in queue.send_many("t", range(MANY), connection=own)]
            own.commit()
        CutOff(queue, monkeypatch, QueueFull("It is full."))
        with pytest.raises(QueueFull):
            queue.relay(wait=False)
        assert queue.cancel(ids[0]) is CancelResult.CANCELLED
