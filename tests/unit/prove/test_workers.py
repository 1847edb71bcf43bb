"""What the checker holds against workers: what they ack their handlers have done, and what is told twice is one delivery."""

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from bide import AsyncQueue, Queue, Worker, current
from bide.clock import ManualClock
from bide.engines.base import End
from bide.engines.gates import Entry, Held
from bide.prove import History, Recorded, RecordedSource, check, read, record_engine
from bide.queue.run.sync.limits import leave
from tests.unit.prove.book import Book


def hand_out(book: Book, token: str = "1", **fields: object) -> None:
    book.send()
    book.receive("m", token=token, **fields)


@pytest.mark.parametrize("result", ["ok", "fail"])
def test_what_a_worker_acks_its_handler_has_done(book: Book, result: Literal["ok", "fail"]) -> None:
    hand_out(book)
    book.act("handle", token="1", result=result)
    book.act("ack", token="1")
    assert book.broken() == (set() if result == "ok" else {"handled"})


def test_an_ack_comes_after_its_handler_was_called(book: Book) -> None:
    hand_out(book)
    acking = book.begin("ack", id="m", token="1")
    book.act("handle", token="1")
    book.end(acking)
    assert book.broken() == {"handled"}


def test_an_ack_that_was_refused_is_judged_too(book: Book) -> None:
    hand_out(book)
    book.act("handle", token="1", result="fail")
    book.act("ack", token="1", result="fail", outcome="LeaseLost")
    book.act("bury", token="1")
    assert book.broken() == {"handled"}


def test_a_handler_may_ack_by_itself_and_fail_after_that(book: Book) -> None:
    hand_out(book)
    handling = book.begin("handle", id="m", token="1")
    book.act("ack", token="1")
    book.end(handling, "fail", outcome="ValueError")
    assert not book.broken()


def test_each_delivery_goes_to_one_handler_once(book: Book) -> None:
    hand_out(book)
    book.act("handle", token="1")
    book.act("handle", token="1")
    book.act("ack", token="1")
    assert book.broken() == {"handled"}


def test_a_handler_is_called_for_what_was_handed_out(book: Book) -> None:
    hand_out(book)
    book.act("handle", token="1")
    book.act("handle", token="0")
    book.act("ack", token="1")
    assert book.broken() == {"handled"}


def test_a_handler_may_be_at_work_after_its_lease_when_others_have_acked(book: Book) -> None:
    hand_out(book, lease=10)
    book.now += 20
    book.receive("m", token="2", attempt=2)
    book.act("handle", token="2")
    book.act("ack", token="2")
    book.act("handle", token="1")
    book.act("ack", token="1", result="fail", outcome="LeaseLost")
    assert not book.broken()


def test_who_has_no_handlers_acks_as_before(book: Book) -> None:
    hand_out(book)
    book.act("ack", token="1")
    assert not book.broken()


def test_what_is_told_again_is_the_same_delivery(book: Book) -> None:
    hand_out(book)
    book.deliver("m", "1", again=True, lease=0)
    book.act("retry", token="1")
    book.receive("m", token="2", attempt=2)
    book.act("ack", token="2")
    assert not book.broken()
    assert book.check().counts["delivered"] == 2


def test_what_only_the_one_who_looks_after_the_dead_has_written_down_is_a_delivery(book: Book) -> None:
    book.send()
    book.begin("receive", topics=["t"], limit=1)
    book.deliver("m", "1", again=True, lease=0)
    book.act("retry", token="1")
    book.receive("m", token="2", attempt=2)
    book.act("ack", token="2")
    assert not book.broken()
    assert book.check().counts["delivered"] == 2


async def test_all_that_a_worker_does_is_written_down(tmp_path: Path) -> None:
    queue = AsyncQueue("memory://written-down")
    path = tmp_path / "worker.jsonl"
    loop, did_well, failed = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    with History(path, "worker") as history:
        record_engine(queue, history)

        @queue.task("good")
        async def good(tag: str, body: object) -> None:
            with history.handling(current()) as op:
                await current().extend("10s")
                op.ok()
            did_well.set()

        @queue.task("bad", max_attempts=1)
        def bad(tag: str, body: object) -> None:
            loop.call_soon_threadsafe(failed.set)
            with history.handling(current()):
                raise ValueError("asked to fail")

        for topic in ("good", "bad"):
            with history.sending(topic, 1, max_attempts=1) as op:
                op.ok(await queue.send(topic, op.body, max_attempts=1))
        async with queue, Worker(queue):
            await asyncio.gather(did_well.wait(), failed.wait())
    records = list(read(path))
    topics = {each.call: each.topic for each in records if each.result == "invoke"}
    ends = {(each.op, topics[each.call], each.result) for each in records if each.call in topics}
    assert {("handle", "good", "ok"), ("extend", "good", "ok"), ("ack", "good", "ok")} <= ends
    assert {("handle", "bad", "fail"), ("bury", "bad", "ok")} <= ends
    assert not check([path]).violations


def test_what_is_called_after_its_worker_stood_still_is_not_early(tmp_path: Path) -> None:
    clock = ManualClock()
    with Queue("memory://called", clock=clock) as queue, History(tmp_path / "p.jsonl", "p") as history:
        engine = RecordedSource(queue.session.setup.source, history).sync()
        engine.open()
        holder, waiter = (Recorded(queue, history).send("t") for _ in range(2))
        first, snoozed = engine.claim(["t"], 2, 60_000).messages
        assert (first.id, snoozed.id) == (holder.id, waiter.id)
        [held] = engine.gates.enter([Entry("lock", "holder", 60_000, 1)])
        engine.settle([End("t", snoozed.id, snoozed.token, "release", 10, began=snoozed.due)])
        clock.advance(0.01)
        [frozen] = engine.claim(["t"], 1, 100).messages
        engine.gates.enter([Entry("lock", "frozen", 100, 1, snoozed.id)])
        clock.advance(0.2)
        engine.tend()
        assert leave(engine, [Held("lock", "holder", held.token)]) == []
        [again] = engine.claim(["t"], 1, 1_000).messages
        assert again.due == snoozed.due < frozen.due
        engine.settle([End("t", each.id, each.token, "done") for each in (again, first)])
        engine.close()
    report = check([tmp_path / "p.jsonl"])
    assert report.valid is True, str(report)


def test_a_claim_that_is_asked_for_again_is_marked(tmp_path: Path) -> None:
    with Queue("memory://again") as queue, History(tmp_path / "p.jsonl", "p") as history:
        engine = RecordedSource(queue.session.setup.source, history).sync()
        engine.open()
        queue.send("t", {"tag": "x"})
        [first] = engine.claim(["t"], 1, 1_000, request="r").messages
        [again] = engine.claim([], 1, 1_000, request="r").messages
        assert again.token == first.token
        assert engine.settle([End("t", first.id, "0", "done"), End("t", first.id, first.token, "done")]) == ["lost", "done"]
        engine.close()
    told = [each.again for each in read(tmp_path / "p.jsonl") if each.op == "deliver"]
    assert told == [False, True]
    acks = [each.result for each in read(tmp_path / "p.jsonl") if each.op == "ack" and each.result != "invoke"]
    assert acks == ["fail", "ok"]
