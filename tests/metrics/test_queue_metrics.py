"""Metrics of a queue: what is there, what falls due when, and one look for all who ask."""

import gc
import subprocess
import threading
import tracemalloc
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from wsgiref.util import setup_testing_defaults
from wsgiref.validate import validator

import httpx
import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from bide import AsyncQueue, BadOption, EngineError, ManualClock, Queue, Unsupported
from bide.metrics import ProcessMetrics, QueueMetrics, app
from bide.metrics.app import registry
from bide.metrics.queue import GONE, STATES, WITHIN, Labels
from bide.queue import EngineCalled
from bide.queue.workers import Process, Work, key, report
from tests.cli.running import BIDE, plain_environment
from tests.metrics.scraped import Samples, ask, parsed, scrape, value
from tests.worker.processes import until

PATIENCE = 60.0


def told(metrics: QueueMetrics) -> Samples:
    registry = CollectorRegistry()
    registry.register(metrics)
    return parsed(generate_latest(registry).decode())


class Calls:
    def __init__(self) -> None:
        self.stats = 0

    def called(self, event: EngineCalled) -> None:
        self.stats += event.verb == "stats"


@pytest.fixture(params=["memory", "sqlite", *(pytest.param(name, marks=pytest.mark.server) for name in ("redis", "postgres"))])
def queue(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Queue]:
    urls = {"memory": "memory://", "sqlite": f"sqlite:///{tmp_path}/q.db"}
    with Queue(urls.get(request.param) or request.getfixturevalue(f"{request.param}_url")) as made:
        yield made


def test_a_queue_tells_what_it_holds_and_what_comes(queue: Queue) -> None:
    for delay in ("30s", "4m", "10m", "20h", "3d"):
        queue.send("mail", 1, delay=delay)
    queue.send_many("mail", [1, 2, 3])
    queue.send("news", 1)
    queue.pause("news")
    [_, delivery] = queue.receive("mail", limit=2)
    delivery.bury("no")
    samples = told(QueueMetrics(queue))
    states = [value(samples, "bide_messages", topic="mail", state=state) for state in STATES]
    assert dict(zip(STATES, states, strict=True)) == {"scheduled": 5, "ready": 1, "leased": 1, "dead": 1}
    assert [value(samples, "bide_due_within_messages", topic="mail", within=str(each)) for each in WITHIN] == [1, 2, 3, 4]
    assert [value(samples, "bide_due_within_messages", topic="news", within=str(each)) for each in WITHIN] == [0, 0, 0, 0]
    assert (value(samples, "bide_paused", topic="mail"), value(samples, "bide_paused", topic="news")) == (0, 1)
    late = value(samples, "bide_oldest_overdue_seconds", topic="mail")
    assert late is not None
    assert 0 <= late < PATIENCE
    assert value(samples, "bide_scrape_success") == 1


def test_what_is_due_is_late_by_the_clock_of_the_queue() -> None:
    clock = ManualClock()
    with Queue("memory://", clock=clock) as queue:
        queue.send("mail", 1, delay="10s")
        clock.advance(70)
        assert value(told(QueueMetrics(queue)), "bide_oldest_overdue_seconds", topic="mail") == 60


def test_further_topics_are_added_up() -> None:
    with Queue("memory://") as queue:
        for topic in ("a", "b", "c", "d"):
            queue.send(topic, 1, delay="2m")
        queue.pause("d")
        metrics = QueueMetrics(queue, topics=2, every=0)
        samples = told(metrics)
        found = {labels for name, labels in samples if name == "bide_paused"}
        assert {dict(labels)["topic"] for labels in found} == {"a", "b", "other"}
        assert value(samples, "bide_messages", topic="other", state="scheduled") == 2
        assert value(samples, "bide_due_within_messages", topic="other", within="300") == 2
        assert value(samples, "bide_paused", topic="other") == 1
        # who came first keeps the labels
        queue.send("A", 1)
        until(lambda: value(told(metrics), "bide_messages", topic="other", state="ready") == 1)


def test_who_has_gone_for_long_makes_room() -> None:
    labels = Labels(2)
    labels.note(["a", "b", "c"])
    for _ in range(GONE):
        labels.note(["b", "c"])
    assert [labels.of(name) for name in "abc"] == ["a", "b", "other"]
    labels.note(["b", "c"])
    assert [labels.of(name) for name in "abc"] == ["other", "b", "c"]
    # who is there keeps its labels, whoever comes before it in the alphabet
    labels.note(["A", "b", "c"])
    assert [labels.of(name) for name in "Abc"] == ["other", "b", "c"]


def test_a_page_of_ten_thousand_topics_stays_small() -> None:
    with Queue("memory://") as queue:
        for number in range(10_000):
            queue.send(f"an.unusually.long.name.of.a.topic.{number:05}", 1, delay="1h")
        page = generate_latest(registry(QueueMetrics(queue)))
    assert len(page) < 200_000
    samples = parsed(page.decode())
    assert sum(found for (name, _), found in samples.items() if name == "bide_messages") == 10_000


def test_nothing_grows_in_a_day_of_scrapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape each minute, while each minute's topic is not used again after five."""
    monkeypatch.setattr("bide.metrics.queue.SHARE", 0)
    clock, sizes = ManualClock(), list[tuple[int, int]]()
    with Queue("memory://", clock=clock) as queue:
        metrics = registry(QueueMetrics(queue, every=0))
        tracemalloc.start()
        try:
            for minute in range(24 * 60):
                queue.send(f"topic.{minute:04}", 1, delay="5m")
                clock.advance(60)
                if minute >= 5:
                    assert queue.ack_many(queue.receive(f"topic.{minute - 5:04}")) == [True]
                page = generate_latest(metrics)
                if minute % 120 == 119:
                    gc.collect()
                    sizes.append((len(page), tracemalloc.get_traced_memory()[0]))
        finally:
            tracemalloc.stop()
    (early, kept), *_, (late, left) = sizes[4:]  # when all labels have been given out
    assert late <= early + 100
    assert left < kept + 100_000


def test_a_look_that_takes_long_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bide.metrics.queue.PATIENCE", 0.05)
    goes_on, plain = threading.Event(), Queue.stats

    def slow(*asked: Any, **options: Any) -> Any:
        assert goes_on.wait(PATIENCE)
        return plain(*asked, **options)

    with Queue("memory://") as queue:
        queue.send("mail", 1)
        metrics = QueueMetrics(queue, every=0)
        with monkeypatch.context() as patched:
            patched.setattr(Queue, "stats", slow)
            # before the first has ended, nothing is known
            assert {name for name, _ in told(metrics)} == {"bide_scrape_success"}
            assert value(told(metrics), "bide_scrape_success") == 0
            goes_on.set()
            until(lambda: value(told(metrics), "bide_messages", topic="mail", state="ready") == 1)
            # later on, it is what was found before
            goes_on.clear()
            queue.send("mail", 2)
            until(lambda: told(metrics) and metrics._look is not None)
            assert value(told(metrics), "bide_messages", topic="mail", state="ready") == 1
            # but not for ever
            patched.setattr("bide.metrics.queue.STALE", 0.1)
            until(lambda: value(told(metrics), "bide_scrape_success") == 0)
            assert value(told(metrics), "bide_messages", topic="mail", state="ready") is None
            goes_on.set()
            until(lambda: value(told(metrics), "bide_messages", topic="mail", state="ready") == 2)


def test_what_breaks_down_is_told_of_and_tried_again(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise ZeroDivisionError

    with Queue("memory://") as queue:
        metrics = QueueMetrics(queue, every=0)
        with monkeypatch.context() as patched:
            patched.setattr(Queue, "stats", broken)
            assert value(told(metrics), "bide_scrape_success") == 0
            assert "broke down" in caplog.text
        until(lambda: value(told(metrics), "bide_scrape_success") == 1)


def test_workers_are_there_by_the_clock_of_the_queue(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    if not queue.capabilities.persistent:
        pytest.skip("its clock is that of this process")
    work = Work({}, 0, 0, [])
    queue.send("mail", 1)
    queue.send("later", 1, delay="30m")
    queue.session.engine().put([report(key("a:1"), Process("a", 1, "1", ["mail"], 0), work)])
    for hours in (-1, 0, 1):
        at = queue.session.setup.now_ms() + hours * 3_600_000
        with monkeypatch.context() as patched:
            patched.setattr(queue.session.setup, "now_ms", lambda at=at: at)
            samples = told(QueueMetrics(queue))
            assert value(samples, "bide_workers") == 1
            assert value(samples, "bide_unhandled", topic="mail") == 0
            within = [value(samples, "bide_due_within_messages", topic="later", within=str(each)) for each in WITHIN]
            assert within == [0, 0, 1, 1]
            assert abs(queue.workers()[0].seen - at) < 1_000 * PATIENCE


def test_a_thousand_that_have_ended_hide_no_worker_that_is_there() -> None:
    with Queue("memory://") as queue:
        engine = queue.session.engine()
        for _ in range(2):
            ended = [
                report(key("old:1"), Process("old", 1, "1", ["t"], 0, stopped=True), Work({}, 0, 0, [])) for _ in range(600)
            ]
            engine.put(ended)
        engine.put([report(key("new:1"), Process("new", 1, "1", ["t"], 0), Work({}, 0, 0, []))])
        assert [each.name for each in queue.workers() if not each.stopped] == ["new:1"]
        assert value(told(QueueMetrics(queue)), "bide_workers") == 1


def test_ten_who_ask_cost_what_one_does() -> None:
    calls = Calls()
    with Queue("memory://") as queue, queue.events.subscribe(calls):
        queue.send("mail", 1)
        metrics = QueueMetrics(queue)
        told(metrics)
        alone = calls.stats
        found: list[Samples] = []
        threads = [threading.Thread(target=lambda: found.append(told(metrics))) for _ in range(10)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(found) == 10
        assert calls.stats == alone


def test_what_can_not_be_looked_at_is_left_out(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with Queue("memory://") as queue:
        queue.send("mail", 1)
        metrics = QueueMetrics(queue, every=0)
        assert value(told(metrics), "bide_messages", topic="mail", state="ready") == 1

        looks = list[None]()

        def away(*_: object, **__: object) -> Any:
            looks.append(None)
            raise EngineError("It is away.")

        with monkeypatch.context() as patched:
            patched.setattr(Queue, "stats", away)
            until(lambda: value(told(metrics), "bide_scrape_success") == 0)
            assert {name for name, _ in told(metrics)} == {"bide_scrape_success", "bide_scrape_seconds"}
            until(lambda: told(metrics) and len(looks) >= 3)
        assert len([each for each in caplog.records if each.name == "bide.metrics"]) == 1  # said once
        until(lambda: value(told(metrics), "bide_scrape_success") == 1)


def test_schedules_tell_when_they_are_next() -> None:
    clock = ManualClock(start=datetime(2030, 1, 1, tzinfo=UTC))
    with Queue("memory://", clock=clock) as queue:

        @queue.every("0 9 * * *", name="report")
        def report() -> None: ...

        queue.testing.advance("8h")
        assert value(told(QueueMetrics(queue)), "bide_schedule_next_seconds", schedule="report") == 3_600


def test_what_is_no_queue_is_refused() -> None:
    with Queue("amqp://localhost") as queue, pytest.raises(Unsupported, match="can't count messages"):
        QueueMetrics(queue)
    with pytest.raises(BadOption, match="this is a str"):
        QueueMetrics("redis://")  # type: ignore[arg-type]


async def test_an_application_for_asgi() -> None:
    async with AsyncQueue("memory://") as queue:
        await queue.send("mail", 1)
        transport = httpx.ASGITransport(app=app(queue, ProcessMetrics()))
        async with httpx.AsyncClient(transport=transport, base_url="http://shop") as client:
            answer = await client.get("/any/path")
            assert answer.headers["content-type"].startswith("text/plain")
            assert value(parsed(answer.text), "bide_messages", topic="mail", state="ready") == 1
            open_metrics = await client.get("/", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
            assert open_metrics.text.endswith("# EOF\n")
            assert (await client.head("/")).content == b""
            assert (await client.post("/")).status_code == 405


def wsgi(application: Any, method: str = "GET", accept: str = "") -> tuple[str, str]:
    environ: dict[str, Any] = {"REQUEST_METHOD": method, "QUERY_STRING": "", "HTTP_ACCEPT": accept}
    setup_testing_defaults(environ)
    begun: list[str] = []

    def start_response(status: str, headers: list[tuple[str, str]], error: object = None) -> Any:
        begun.append(status)

    parts = validator(application)(environ, start_response)
    try:
        body = b"".join(parts).decode()
    finally:
        parts.close()  # type: ignore[attr-defined]
    return begun[0], body


def test_an_application_for_wsgi() -> None:
    with Queue("memory://") as queue:
        with pytest.raises(BadOption, match="one is a str"):
            app(queue, "x")  # type: ignore[arg-type]
        queue.send("mail", 1)
        application = app(queue).wsgi
        status, body = wsgi(application)
        assert status == "200 OK"
        assert value(parsed(body), "bide_messages", topic="mail", state="ready") == 1
        assert wsgi(application, "HEAD") == ("200 OK", "")
        assert wsgi(application, accept="text/plain;version=abc")[0] == "200 OK"
        assert wsgi(application, "POST")[0] == "405 Method Not Allowed"


def test_a_command_serves_them(tmp_path: Path, exporter: Any) -> None:
    url = f"sqlite:///{tmp_path}/q.db"
    with Queue(url) as queue:
        queue.send("mail", 1)
    (tmp_path / "shop.py").write_text(f"from bide import AsyncQueue\nqueue = AsyncQueue({url!r})\n")
    for port in (exporter(url), exporter("--url", url), exporter("shop:queue")):
        assert value(scrape(port), "bide_messages", topic="mail", state="ready") == 1
        assert ask(port, "/")[0] == 404
        assert ask(port, method="POST")[0] == 405


@pytest.mark.parametrize(
    ("arguments", "said", "code"),
    [
        (("memory://",), "Messages in memory:// are lost", 1),
        (("amqp://localhost",), "can't count messages", 1),
        (("shop",), "is not MODULE:QUEUE", 1),
        (("sqlite:///q.db", "--url", "sqlite:///r.db"), "Name the queue once", 2),
        (("sqlite:///none.db",), "There is no queue at", 1),
        (("--port", "x"), "is not a port", 2),
        (("redis//:hunter2@host",), "This is no URL of an engine", 2),
        (("redis:/:hunter2@host",), "This is no URL of an engine", 2),
        ((":hunter2@host:6379",), "This is no URL of an engine", 2),
    ],
)
def test_a_command_that_can_not_serve_says_why(tmp_path: Path, arguments: tuple[str, ...], said: str, code: int) -> None:
    command = [*BIDE, "metrics", *arguments]
    ended = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, env=plain_environment(), timeout=PATIENCE, check=False
    )
    assert ended.returncode == code
    assert said in " ".join(ended.stderr.replace("│", " ").split())
    assert "hunter2" not in ended.stderr
