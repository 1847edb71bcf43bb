"""What is recorded of the use of a queue."""

from pathlib import Path
from typing import Any

import pytest

from bide import AsyncQueue, ConfirmTimeout, LeaseLost, OutcomeUnknown, Outgoing, PartlySent, Queue, Sent, Unavailable
from bide.prove import AsyncRecorded, History, Recorded, check, read


class Broken:
    """A queue whose sends raise."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    def send(self, *asked: Any, **how: Any) -> Any:
        raise self.error

    send_many = send


def results(path: Path, op: str) -> list[str]:
    return [record.result for record in read(path) if record.op == op]


@pytest.mark.parametrize(
    ("error", "result"),
    [(Unavailable("not there"), "fail"), (OutcomeUnknown("?"), "unknown"), (RuntimeError("?"), "unknown")],
)
def test_an_error_fails_a_send_only_if_it_promises_that_nothing_was_done(tmp_path: Path, error: Exception, result: str) -> None:
    path = tmp_path / "p.jsonl"
    with History(path) as history, pytest.raises(type(error)):
        Recorded(Broken(error), history).send("t")  # type: ignore[arg-type]
    assert results(path, "send") == ["invoke", result]


def test_part_of_a_batch_is_written_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    sent = [Sent(str(number), "t", 0, "created") for number in range(1_000)]
    error = PartlySent("half of it", sent, OutcomeUnknown("?"))
    with History(path) as history, pytest.raises(PartlySent):
        Recorded(Broken(error), history).send_many("t", [None] * 2_500)  # type: ignore[arg-type]
    ends = results(path, "send")[2_500:]
    assert ends == ["ok"] * 1_000 + ["unknown"] * 1_000 + ["fail"] * 500


def test_a_large_batch_that_was_not_confirmed_was_tried_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    error = ConfirmTimeout("not confirmed", operations=["own"] * 2_500)
    with History(path) as history, pytest.raises(ConfirmTimeout):
        Recorded(Broken(error), history).send_many("t", [None] * 2_500)  # type: ignore[arg-type]
    assert results(path, "send")[2_500:] == ["unknown"] * 2_500


def test_all_that_is_done_with_a_queue_is_written(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    with Queue("memory://") as queue, History(path) as history:
        recorded = Recorded(queue, history)
        first, second = recorded.send_many("t", [1, 2])
        third = recorded.send("t", key="k", headers={"a": "b"}, operation="o")
        assert recorded.cancel(first)
        assert recorded.reschedule(topic="t", key="k", delay=0)
        [delivery] = recorded.receive("t")
        assert delivery.plain.id == second.id
        delivery.extend("10s")
        delivery.retry(0)
        [one, two] = recorded.receive("t", limit=2)
        one.release()
        two.bury("no use")
        with pytest.raises(LeaseLost):
            two.ack()
        assert recorded.requeue("t", [two.plain.id]) == 1
        recorded.pause("t")
        assert recorded.receive("t") == []
        recorded.resume("t")
        for each in recorded.receive("t", limit=2):
            each.ack()
        recorded.send("u", delay=60)
        assert recorded.purge("u", state="scheduled") == 1
        recorded.send("u", delay=60)
        recorded.look()
    report = check([path])
    assert report.valid is True, str(report)
    assert third.id in {record.id for record in read(path) if record.op == "deliver"}
    assert (report.counts["accepted"], report.counts["left"], report.counts["refused"]) == (5, 1, 1)


def test_a_batch_keeps_the_options_of_its_messages(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    with Queue("memory://") as queue, History(path) as history:
        Recorded(queue, history).send_many("t", ["plain", Outgoing("later", delay=60, key="k", max_attempts=1)])
        [later] = queue.messages("t", state="scheduled")
        assert (later.body["body"], later.key, later.max_attempts) == ("later", "k", 1)
    asked = [record for record in read(path) if record.op == "send" and record.result == "invoke"]
    assert [(each.delay, each.key, each.max_attempts, each.if_exists) for each in asked] == [
        (0, None, 3, None),
        (60_000, "k", 1, "keep"),
    ]


def test_a_send_within_a_transaction_is_refused(tmp_path: Path) -> None:
    with History(tmp_path / "p.jsonl") as history, pytest.raises(ValueError, match="transaction"):
        history.sending("t", connection=object())


async def test_async_code_writes_the_same(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    async with AsyncQueue("memory://") as queue:
        with History(path) as history:
            recorded = AsyncRecorded(queue, history)
            await recorded.send("t", {"n": 1})
            [delivery] = await recorded.receive("t")
            await delivery.ack()
            await recorded.look()
    assert check([path]).valid is True


def test_what_is_left_can_be_handed_to_the_checker(tmp_path: Path) -> None:
    with Queue("memory://") as queue, History(tmp_path / "p.jsonl") as history:
        recorded = Recorded(queue, history)
        recorded.send("t")
        recorded.send("t", delay=60)
        [delivery] = recorded.receive("t")
        delivery.ack()
        assert check([history.log.path]).valid == "unknown"
        assert check([history.log.path], left=queue.messages("t")).valid is True
        assert check([history.log.path], left=[]).valid is False


def test_a_listener_writes_what_it_hands_out_and_may_hold_more(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    with Queue("memory://") as queue, History(path) as history:
        Recorded(queue, history).send_many("t", [1, 2])
        with history.listening(["t"], lease="10s") as op:
            for delivery in queue.listen("t"):
                op.delivered(delivery)
                with history.ending("ack", delivery) as end:
                    delivery.ack()
                    end.ok()
                break
    report = check([path])
    assert (report.valid, report.counts["acked"]) == ("unknown", 1)
