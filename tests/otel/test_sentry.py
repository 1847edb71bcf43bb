"""What Sentry is told, as its SDK sends it: scopes, events and traces of messages."""

import asyncio
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import sentry_sdk
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import TracerProvider
from sentry_sdk.envelope import Envelope
from sentry_sdk.integrations import _installed_integrations, _processed_integrations
from sentry_sdk.transport import Transport

from bide import AsyncQueue, Bury, Queue, Retry, Snooze, Worker, current
from bide.otel import BideInstrumentor
from bide.sentry import BideIntegration
from tests.worker.conftest import once


class Kept(Transport):
    """Keeps what is sent."""

    def __init__(self) -> None:
        super().__init__({"dsn": "http://key@localhost/1"})
        self.events: list[Any] = []
        self.transactions: list[Any] = []

    def capture_envelope(self, envelope: Envelope) -> None:
        for item in envelope.items:
            if (event := item.get_event()) is not None:
                self.events.append(event)
            if (transaction := item.get_transaction_event()) is not None:
                self.transactions.append(transaction)


@pytest.fixture
def kept() -> Iterator[Kept]:
    kept = Kept()
    for known in (_installed_integrations, _processed_integrations):
        known.discard("bide")  # so that it is set up for this test
    with sentry_sdk.isolation_scope(), sentry_sdk.new_scope():
        sentry_sdk.init(
            "http://key@localhost/1",
            transport=kept,
            traces_sample_rate=1.0,
            integrations=[BideIntegration()],
            auto_session_tracking=False,
        )
        yield kept
        sentry_sdk.init()
    assert BideIntegration.subscription is not None
    BideIntegration.subscription.close()


@pytest.fixture
def queue() -> Iterator[Queue]:
    from bide import ManualClock

    with Queue("memory://", clock=ManualClock()) as made:
        yield made


def test_an_error_is_one_event_with_the_tags_of_its_message(queue: Queue, kept: Kept, coloured: Any) -> None:
    @queue.task("order.cancel")
    @coloured
    def cancel(order: int) -> None:
        sentry_sdk.set_tag("mine", order)
        if current().attempt == 1:
            raise ValueError("no such order")

    sent = cancel.options(key="-".join("key")).send(42)  # the source around a handler is sent, too
    queue.testing.advance("1h", raise_errors=False)

    [event] = kept.events
    assert event["tags"] == {
        "bide.topic": "order.cancel",
        "bide.task": event["tags"]["bide.task"],
        "bide.attempt": 1,
        "bide.message_id": sent.id,
        "mine": 42,
    }
    assert event["transaction"] == "order.cancel"
    [raised] = event["exception"]["values"]
    assert (raised["type"], raised["value"]) == ("ValueError", "no such order")
    assert raised["mechanism"] == {"type": "bide", "handled": False}
    assert [each["contexts"]["trace"]["status"] for each in kept.transactions] == ["internal_error", "ok"]
    assert [each["transaction"] for each in kept.transactions] == ["order.cancel"] * 2
    assert "k-e-y" not in str(kept.events) + str(kept.transactions)


@pytest.mark.parametrize("error", [Retry("1s"), Snooze("1s"), Bury("no"), ExceptionGroup("two", [ValueError(), Bury("no")])])
def test_what_a_handler_asks_for_is_no_event(queue: Queue, kept: Kept, error: Exception) -> None:
    @queue.task("t")
    def handle() -> None:
        raise error

    handle.send()
    queue.testing.advance(0, raise_errors=False)

    assert [each for each in kept.events if "exception" in each and each.get("logger") is None] == []
    assert kept.transactions[0]["contexts"]["trace"]["status"] == "aborted"


def test_the_trace_goes_on_from_the_send(queue: Queue, kept: Kept) -> None:
    @queue.task("t")
    def handle() -> None: ...

    with sentry_sdk.start_transaction(name="request", op="http.server"):
        handle.after("15m").send()
    queue.testing.advance("15m")

    request, process = kept.transactions
    [publish] = request["spans"]
    assert (publish["op"], publish["description"], publish["data"]["messaging.system"]) == ("queue.publish", "t", "bide")
    assert process["contexts"]["trace"]["op"] == "queue.process"
    assert process["contexts"]["trace"]["trace_id"] == request["contexts"]["trace"]["trace_id"]
    assert process["contexts"]["trace"]["parent_span_id"] == publish["span_id"]


def test_the_senders_own_headers_stay(queue: Queue, kept: Kept) -> None:
    queue.send("t", 1, headers={"baggage": "mine=1"})
    [delivery] = queue.receive("t")
    assert delivery.headers["baggage"] == "mine=1"
    assert "sentry-trace" in delivery.headers


@pytest.mark.parametrize("first", ["sentry", "opentelemetry"])
def test_the_baggage_of_opentelemetry_stays_whichever_began_first(queue: Queue, kept: Kept, first: str) -> None:
    assert BideIntegration.subscription is not None
    if first == "opentelemetry":
        BideIntegration.subscription.close()
    BideInstrumentor().instrument(tracer_provider=TracerProvider())
    try:
        if first == "opentelemetry":
            _installed_integrations.discard("bide")
            _processed_integrations.discard("bide")
            sentry_sdk.init("http://key@localhost/1", transport=kept, traces_sample_rate=1.0, integrations=[BideIntegration()])
        token = context.attach(baggage.set_baggage("tenant", "acme"))
        try:
            queue.send("t", 1)
        finally:
            context.detach(token)
    finally:
        BideInstrumentor().uninstrument()
    [delivery] = queue.receive("t")
    assert delivery.headers["baggage"] == "tenant=acme"
    assert {"traceparent", "sentry-trace"} <= delivery.headers.keys()


def test_a_batch_is_one_transaction_and_its_error_one_event(queue: Queue, kept: Kept) -> None:
    @queue.task("t", batch=3)
    def handle(numbers: list[int]) -> None:
        raise ValueError

    handle.send_many([1, 2, 3])
    queue.testing.advance(0, raise_errors=False)

    [event], [transaction] = kept.events, kept.transactions
    assert event["tags"]["bide.batch"] == 3
    assert "bide.message_id" not in event["tags"]
    assert transaction["transaction"] == "t"


async def test_messages_of_a_worker_have_each_their_own_scope(kept: Kept, coloured: Any) -> None:
    queue = AsyncQueue("memory://")
    begun: list[int] = []

    @queue.task("slow", max_attempts=1, timeout=0.2)
    async def slow(number: int) -> None:
        sentry_sdk.set_tag("number", number)
        begun.append(number)
        await asyncio.sleep(0.001)
        if number == 2:
            await asyncio.Event().wait()
        raise ValueError(number)

    @queue.task("fine")
    @coloured
    def fine() -> None:
        sentry_sdk.set_tag("number", "fine")

    await slow.send_many({"number": each} for each in range(3))
    await fine.send()
    async with Worker(queue):
        await once(lambda: len(kept.transactions) == 4 and len(kept.events) == 3)
    await queue.close()

    errors = {each["tags"]["number"]: each["exception"]["values"][-1]["type"] for each in kept.events}
    assert errors == {0: "ValueError", 1: "ValueError", 2: "TimeoutError"}
    assert {each["transaction"] for each in kept.events} == {"slow"}


def test_other_lines_of_the_log_are_events_as_before(queue: Queue, kept: Kept, caplog: pytest.LogCaptureFixture) -> None:
    def tell(delivery: Any, reason: str) -> None:
        raise KeyError("on_dead")

    @queue.task("t", max_attempts=1, on_dead=tell)
    def handle() -> None:
        raise ValueError

    handle.send()
    logging.getLogger("bide.worker").error("A thread can't be started")
    queue.testing.advance(0, raise_errors=False)

    kinds = [each["exception"]["values"][-1]["type"] if "exception" in each else "log" for each in kept.events]
    assert kinds == ["log", "ValueError", "KeyError"]


def test_it_does_nothing_where_sentry_is_off(queue: Queue, kept: Kept) -> None:
    sentry_sdk.init()
    queue.send("t", 1)
    [delivery] = queue.receive("t")
    assert (dict(delivery.headers), kept.transactions) == ({}, [])
