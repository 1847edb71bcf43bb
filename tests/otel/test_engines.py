"""The trace goes with the message through every engine, and through an outbox."""

import json
import sqlite3
from contextlib import closing
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

from bide import AsyncQueue, Queue, Worker, current, steps
from bide.cli.worker.log import JsonFormatter
from bide.otel import BideInstrumentor
from bide.queue import MessagesEnded
from tests.otel.receiver import Received
from tests.worker.conftest import once

SERVERS = [pytest.param(name, marks=pytest.mark.server) for name in ("redis", "postgres", "rabbitmq")]


@pytest.mark.parametrize("engine", ["memory", "sqlite", *SERVERS])
async def test_a_worker_traces_handlers_in_the_loop_and_in_threads(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, traced: Any, provider: TracerProvider, received: Received
) -> None:
    traced(link_after="1s")
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/bide.db"}
    queue = AsyncQueue(urls.get(engine) or request.getfixturevalue(f"{engine}_url"))
    seen: dict[str, str] = {}

    def see(topic: str) -> None:
        seen[topic] = f"{trace.get_current_span().get_span_context().span_id:016x}"

    @queue.task("in.loop")
    async def in_loop() -> None:
        see("in.loop")
        await in_thread.send()

    @queue.task("in.thread")
    def in_thread() -> None:
        see("in.thread")

    @queue.task("delayed", backoff=steps(0.1))
    async def delayed() -> None:
        if current().attempt == 1:
            raise ValueError
        see("delayed")

    with provider.get_tracer("web").start_as_current_span("request"):
        await in_loop.send()
        await delayed.after(1.1).send()
    BideInstrumentor().uninstrument()
    traced(link_after="1h")  # of the worker, so that no slow machine makes another trace of the second attempt
    with provider.get_tracer("web").start_as_current_span("what the worker runs in"):
        async with Worker(queue):
            await once(lambda: len(seen) == 3)
    await queue.close()

    [request_span] = received.named("request")
    [first], [second] = received.named("process in.loop"), received.named("process in.thread")
    [send] = received.named("send in.thread")
    assert first.trace == second.trace == request_span.trace
    assert (send.parent, second.parent) == (first.id, send.id)
    [one, other] = received.named("process delayed")
    [sent] = received.named("send delayed")
    assert one.trace == other.trace != request_span.trace
    assert one.links == other.links == [(sent.trace, sent.id)]
    assert seen == {"in.loop": first.id, "in.thread": second.id, "delayed": other.id}


async def test_the_workers_lines_about_a_message_have_the_ids_of_its_span(
    traced: Any, received: Received, caplog: pytest.LogCaptureFixture
) -> None:
    traced()
    caplog.set_level("INFO", "bide.worker")
    async with AsyncQueue("memory://") as queue:

        @queue.task("fails", max_attempts=1)
        async def fails() -> None:
            raise ValueError

        @queue.task("buries")
        async def buries() -> None:
            await current().bury("no")

        @queue.task("reads", max_attempts=1)
        async def reads(number: int) -> None: ...

        await fails.send()
        await buries.send()
        await queue.send("reads", {"number": "x"})
        async with Worker(queue) as worker:
            await once(lambda: worker.health().failed == 3)
            assert worker.health().done == 0
    for topic in ("fails", "buries", "reads"):
        [span] = received.named(f"process {topic}")
        [line] = [each for each in caplog.records if getattr(each, "topic", None) == topic]
        told = json.loads(JsonFormatter().format(line))
        assert (told["outcome"], told["trace_id"], told["span_id"]) == ("dead", span.trace, span.id)


async def test_what_goes_out_together_is_of_nobodys_context(traced: Any, received: Received) -> None:
    traced(settle_spans=True)
    seen = list[str]()

    class Looks:
        def ended(self, event: MessagesEnded) -> None:
            if event.count > 1:  # an ack that goes out alone is its caller's
                seen.append(variable.get())

    variable = ContextVar("variable", default="nobody's")
    async with AsyncQueue("memory://") as queue:
        with queue.events.subscribe(Looks()):

            @queue.task("t")
            async def handle(number: int) -> None:
                variable.set(f"of {number}")
                await current().ack()

            await handle.send_many({"number": each} for each in range(20))
            async with Worker(queue):
                await once(lambda: len(received.named("process t")) == 20)
    assert set(seen) <= {"nobody's"}
    assert {each.parent for each in received.named("ack t") if "messaging.batch.message_count" in each.attributes} <= {""}


def test_it_goes_through_an_outbox(tmp_path: Path, traced: Any, provider: TracerProvider, received: Received) -> None:
    traced()
    store = f"sqlite:///{tmp_path}/app.db"
    with Queue("memory://", outbox=store) as queue:
        with Queue(store) as there:
            there.stats()
        with (
            closing(sqlite3.connect(tmp_path / "app.db")) as connection,
            provider.get_tracer("web").start_as_current_span("request"),
        ):
            queue.send("t", 1, connection=connection)
            connection.commit()
        assert queue.relay(wait=False) == 1
        [delivery] = queue.receive("t")

    [send] = received.named("send t")
    assert delivery.headers["traceparent"].startswith(f"00-{send.trace}-{send.id}-")
