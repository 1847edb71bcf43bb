"""Traces as a receiver of OTLP sees them: from the send over hours and attempts to the end."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import TracerProvider

from bide import Bury, Exists, Failed, ManualClock, Outgoing, Queue, Retry, Snooze, current, steps
from bide.otel.conventions import SCHEMA
from tests.otel.receiver import Received, ReceivedSpan


def link(span: ReceivedSpan) -> tuple[str, str]:
    return span.trace, span.id


@pytest.fixture(params=["memory", "sqlite"])
def queue(request: pytest.FixtureRequest, clock: ManualClock, tmp_path: Path) -> Any:
    made = Queue("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/bide.db", clock=clock)
    yield made
    made.close()


def test_a_delayed_message_and_its_retry_are_a_trace_of_their_own(
    queue: Queue, clock: ManualClock, traced: Any, provider: TracerProvider, received: Received
) -> None:
    traced()
    web = provider.get_tracer("web")

    @queue.task("order.cancel")
    def cancel(order: int) -> None:
        if current().attempt == 1:
            raise Retry("1s")

    with web.start_as_current_span("POST /orders"):
        sent = cancel.after("15m").send(42)
    queue.testing.advance("15m")
    queue.testing.advance("2s")

    [request], [send] = received.named("POST /orders"), received.named("send order.cancel")
    first, second = received.named("process order.cancel")
    assert send.trace == request.trace
    assert send.parent == request.id
    assert first.trace == second.trace != request.trace
    assert first.parent == second.parent == ""
    assert first.links == second.links == [link(send)]
    assert len(received.traces()) == 2
    assert request.begin <= send.begin <= send.end <= request.end <= first.begin <= first.end <= second.begin
    due = datetime.fromtimestamp(sent.due / 1000, UTC)
    assert [datetime.fromisoformat(each.attributes["bide.due"]) for each in (send, first)] == [due, due]
    assert (datetime.fromisoformat(second.attributes["bide.due"]) - due).total_seconds() == 1
    assert send.attributes == {
        "messaging.system": "bide",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "order.cancel",
        "messaging.message.id": sent.id,
        "bide.due": send.attributes["bide.due"],
        "bide.outcome": "created",
    }
    assert first.attributes == {
        "messaging.system": "bide",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "order.cancel",
        "messaging.message.id": sent.id,
        "error.type": "bide.queue.tasks.outcome.Retry",
        "bide.task": "tests.otel.test_traces.cancel",
        "bide.due": first.attributes["bide.due"],
        "bide.lateness": 0.0,
        "bide.attempt": 1,
        "bide.outcome": "retried",
    }
    assert (second.attributes["bide.attempt"], second.attributes["bide.outcome"]) == (2, "done")
    assert [each.kind for each in (send, first)] == ["producer", "consumer"]
    assert (first.failed, second.failed) == (True, False)
    assert {each.schema for each in (send, first)} == {SCHEMA}


def test_a_prompt_message_is_a_child_and_a_late_retry_is_a_trace_of_its_own(
    queue: Queue, traced: Any, received: Received
) -> None:
    traced()

    @queue.task("t", backoff=steps(20, 5, 60), max_attempts=9)
    def handle() -> None:
        if current().attempt < 4:
            raise ValueError

    handle.send()
    for _ in range(10):
        queue.testing.advance("10s", raise_errors=False)

    [send] = received.named("send t")
    attempts = received.named("process t")
    assert [each.attributes["bide.attempt"] for each in attempts] == [1, 2, 3, 4]
    assert [each.parent for each in attempts] == [send.id, send.id, send.id, ""]  # 0, 20, 25 and 85 s after the first
    assert [each.trace == send.trace for each in attempts] == [True, True, True, False]
    assert all(each.links == [link(send)] for each in attempts)
    assert [each.attributes.get("error.type") for each in attempts] == ["ValueError"] * 3 + [None]


def test_a_prompt_message_that_is_moved_later_is_a_trace_of_its_own(queue: Queue, traced: Any, received: Received) -> None:
    traced()

    @queue.task("t", max_attempts=1)
    def handle() -> None:
        raise ValueError

    moved, soon = (handle.after("10s").send() for _ in range(2))
    queue.reschedule(moved.id, delay="3d")
    queue.reschedule(soon.id, delay="20s")
    queue.testing.advance("3d", raise_errors=False)
    again = handle.send()
    queue.testing.advance("1s", raise_errors=False)
    queue.testing.advance("3d", raise_errors=False)
    assert queue.requeue("t", [again.id]) == 1
    queue.testing.advance("1s", raise_errors=False)

    sends, attempts = received.named("send t"), received.named("process t")
    assert [each.attributes["bide.attempt"] for each in attempts] == [1, 1, 1, 1]
    assert [each.parent for each in attempts] == [sends[1].id, "", sends[2].id, ""]
    assert [each.links for each in attempts] == [[link(sends[1])], [link(sends[0])], [link(sends[2])], [link(sends[2])]]


def test_a_batch_links_to_the_send_of_each(queue: Queue, traced: Any, provider: TracerProvider, received: Received) -> None:
    traced()
    web = provider.get_tracer("web")

    @queue.task("t", batch=10)
    def handle(numbers: list[int]) -> list[Failed]:
        return [Failed(2, Bury("no"))]

    for number in (1, 2, 3):
        with web.start_as_current_span("request"):
            handle.send(number)
    queue.testing.advance(0, raise_errors=False)

    sends, [process] = received.named("send t"), received.named("process t")
    assert len({each.trace for each in sends}) == 3
    assert sorted(process.links) == sorted(map(link, sends))
    assert process.parent == ""
    assert process.trace not in {each.trace for each in sends}
    assert process.attributes["messaging.batch.message_count"] == 3
    assert process.attributes["bide.outcome"] == "mixed"
    assert "messaging.message.id" not in process.attributes


def test_many_messages_of_one_send_have_a_span_each(queue: Queue, traced: Any, received: Received) -> None:
    traced()

    @queue.task("t")
    def handle(number: int) -> None: ...

    handle.send_many([{"number": 1}, Outgoing({"number": 2}, delay="1h")])
    queue.testing.advance("1h")

    creates, [send] = received.named("create t"), received.named("send t")
    soon, late = received.named("process t")
    assert send.kind == "client"
    assert send.attributes["messaging.batch.message_count"] == 2
    assert [each.kind for each in creates] == ["producer"] * 2
    assert sorted(send.links) == sorted(map(link, creates))
    assert (soon.parent, soon.links) == (creates[0].id, [link(creates[0])])
    assert (late.parent, late.links) == ("", [link(creates[1])])


def test_a_schedule_has_no_sender_to_link_to(queue: Queue, traced: Any, received: Received) -> None:
    traced()

    @queue.every("1h", topic="tick", backoff=steps(1))
    def tick() -> None:
        if current().attempt == 1:
            raise ValueError

    queue.testing.advance("2h", raise_errors=False)

    spans = received.named("process tick")
    assert len(spans) >= 3
    assert all(each.links == [] and each.parent == "" for each in spans)
    first, again, other = spans[:3]
    assert first.trace == again.trace != other.trace


def test_baggage_and_the_users_own_headers_reach_the_handler(queue: Queue, traced: Any, received: Received) -> None:
    traced()
    seen: list[Any] = []
    own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

    @queue.task("t")
    def handle() -> None:
        seen.append((baggage.get_baggage("tenant"), current().headers.get("traceparent")))

    token = context.attach(baggage.set_baggage("tenant", "acme"))
    handle.after("1h").send()
    context.detach(token)
    handle.options(headers={"traceparent": own}).send()
    queue.testing.advance("1h")

    assert sorted(each[0] or "" for each in seen) == ["", "acme"]
    assert own in [each[1] for each in seen]
    spans = received.named("process t")
    assert [each.trace for each in spans if each.parent] == ["0af7651916cd43dd8448eb211c80319c"]


@pytest.mark.parametrize(
    ("error", "outcome", "kind"),
    [
        (ValueError("secret"), "retried", "ValueError"),
        (Bury("no"), "dead", "bide.queue.tasks.outcome.Bury"),
        (Snooze("1h"), "released", None),
    ],
    ids=["error", "bury", "snooze"],
)
def test_what_a_handler_raises(
    queue: Queue, traced: Any, received: Received, error: Exception, outcome: str, kind: str | None
) -> None:
    traced()

    @queue.task("t")
    def handle() -> None:
        raise error

    handle.options(key="the key").send()
    queue.testing.advance(0, raise_errors=False)

    [span] = received.named("process t")
    assert (span.attributes["bide.outcome"], span.attributes.get("error.type")) == (outcome, kind)
    assert span.failed == (kind is not None)
    assert not any("the key" in str(value) for each in received.spans for value in each.attributes.values())


def test_neither_a_key_nor_a_value_of_a_body_is_in_a_trace(queue: Queue, traced: Any, received: Received) -> None:
    traced()

    @queue.task("t", max_attempts=1)
    def handle(colour: Literal["red"]) -> None: ...

    queue.send("t", {"colour": "secret-colour"}, key="secret-key")
    queue.testing.advance("1s", raise_errors=False)
    queue.send("t", {"colour": "red"}, key="secret-key", delay="1h")
    with pytest.raises(Exists, match="secret-key"):
        queue.send("t", {"colour": "red"}, key="secret-key", if_exists="error")

    assert [each.failed for each in received.named("process t")] == [True]
    assert [each.failed for each in received.named("send t")] == [False, False, True]
    assert "bide.errors.Exists" in received.text
    assert "secret" not in received.text


def test_a_send_that_fails_says_so(queue: Queue, traced: Any, received: Received) -> None:
    traced()
    queue.send("t", 1, key="k")
    with pytest.raises(Exception, match="key"):
        queue.send("t", 1, key="k", if_exists="error")

    [_, failed] = received.named("send t")
    assert failed.failed
    assert failed.attributes["error.type"] == "bide.errors.Exists"


@pytest.mark.parametrize("option", ["0s", "1h"])
def test_link_after_is_the_senders_choice(queue: Queue, traced: Any, received: Received, option: str) -> None:
    traced(link_after=option)

    @queue.task("t")
    def handle() -> None: ...

    handle.after("1m").send()
    queue.testing.advance("1m")

    [send], [process] = received.named("send t"), received.named("process t")
    assert (process.parent == send.id) == (option == "1h")
    assert process.links == [link(send)]


def test_settle_spans_on_request(queue: Queue, traced: Any, received: Received) -> None:
    traced(settle_spans=True)
    queue.send_many("t", [1, 2])
    queue.send("t", 3)
    first, second, third = queue.receive("t", limit=3)
    queue.ack_many([first, second])
    third.retry()

    [ack], [retry] = received.named("ack t"), received.named("retry t")
    assert sorted(ack.links) == sorted(map(link, received.named("create t")))
    assert (ack.kind, ack.attributes["messaging.operation.type"], ack.attributes["messaging.batch.message_count"]) == (
        "client",
        "settle",
        2,
    )
    assert retry.attributes["messaging.message.id"] == third.id
