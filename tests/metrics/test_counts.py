"""What processes count in memory that they share, and what is told of it."""

import os
import threading
from multiprocessing import get_context
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import generate_latest

from bide import BadOption, EngineError, Queue
from bide.engines.base import Claimed, NewMessage
from bide.metrics import ProcessMetrics
from bide.metrics.counts import ENDED, SECONDS, SENT, Counting, SharedCounts, SharedLock
from bide.metrics.process import CountsCollector
from bide.queue import EngineCalled, MessagesBegun, MessagesSent
from bide.types import Sent
from bide.worker.claim_log import nameless_file
from tests.metrics.scraped import Samples, parsed, value


def generate_latest_of(collector: CountsCollector) -> bytes:
    registry = CollectorRegistry()
    registry.register(collector)
    return generate_latest(registry)


def told(collector: CountsCollector) -> Samples:
    return parsed(generate_latest_of(collector).decode())


def sent(topic: str, count: int = 1) -> MessagesSent:
    new, answer = NewMessage(topic, b"1"), Sent("id", topic, 0, "created")
    return MessagesSent(topic, "created", [(new, answer)] * count)


def begun(topic: str, *late: int) -> MessagesBegun:
    return MessagesBegun(topic, [Claimed("id", topic, b"", {}, None, -each, -each, 1, 3, "t") for each in late], 0)


def test_a_process_tells_what_it_sends_receives_and_ends() -> None:
    metrics = ProcessMetrics()
    with Queue("memory://") as queue, queue.events.subscribe(metrics):
        queue.send_many("mail", [1, 2, 3])
        queue.send("mail", 4, key="k")
        queue.send("mail", 5, key="k")
        first, second, third, _ = queue.receive("mail", limit=4)
        first.ack()
        second.retry("1h")
        third.bury("no")
    samples = told(metrics)
    assert value(samples, "bide_sent_total", topic="mail", outcome="created") == 4
    assert value(samples, "bide_sent_total", topic="mail", outcome="kept") == 1
    assert value(samples, "bide_sent_total", topic="mail", outcome="replaced") is None
    assert value(samples, "bide_begun_total", topic="mail") == 4
    ended = {outcome: value(samples, "bide_ended_total", topic="mail", outcome=outcome) for outcome in ENDED}
    assert ended == {"done": 1, "retried": 1, "released": 0, "dead": 1, "expired": 0, "lost": 0}
    assert value(samples, "bide_lateness_seconds_count", topic="mail") == 4
    assert value(samples, "bide_run_seconds_count", topic="mail") == 3
    assert value(samples, "bide_engine_call_seconds_count", verb="put") == 3
    assert not [name for name, _ in samples if name in ("bide_running", "bide_slots")]  # it is no worker


def test_a_fork_counts_on_for_itself() -> None:
    """As web servers do that load the program before they fork."""
    metrics = ProcessMetrics()
    metrics.sent(sent("mail"))
    told_by, tells = os.pipe()
    if (child := os.fork()) == 0:
        try:
            metrics.sent(sent("mail"))
            os.write(tells, generate_latest_of(metrics))
        finally:
            os._exit(0)
    os.close(tells)
    with os.fdopen(told_by) as answer:
        assert value(parsed(answer.read()), "bide_sent_total", topic="mail", outcome="created") == 2
    os.waitpid(child, 0)
    assert value(told(metrics), "bide_sent_total", topic="mail", outcome="created") == 1


def test_what_a_dead_process_had_is_cleared_before_the_next_one_begins() -> None:
    counts = SharedCounts(processes=2)
    first = Counting(counts, 0)
    first.serves(10)
    first.begun(begun("mail", 0, 0, 0))
    counts.clear(0)
    samples = told(CountsCollector(counts, workers=2))
    assert value(samples, "bide_running", topic="mail") == 0
    assert (value(samples, "bide_slots", state="busy"), value(samples, "bide_slots", state="free")) == (0, 0)
    assert value(samples, "bide_begun_total", topic="mail") == 3


def test_a_topic_beyond_the_limit_takes_no_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = SharedCounts(topics=1)
    counting = Counting(counts)
    counting.sent(sent("mail"))
    monkeypatch.setattr(SharedLock, "held", None)
    counting.sent(sent("news"))
    assert value(told(CountsCollector(counts)), "bide_sent_total", topic="other", outcome="created") == 1


@pytest.mark.parametrize("topics", [0, -1, "3", None, 10**9])
def test_a_number_of_topics_that_is_none_is_refused(topics: Any) -> None:
    with pytest.raises(BadOption, match="topics"):
        ProcessMetrics(topics=topics)


def test_the_outcomes_are_those_of_events() -> None:
    from typing import get_args

    from bide.queue.events import EndedAs
    from bide.types import Outcome

    assert get_args(EndedAs) == ENDED
    assert get_args(Outcome) == SENT


def test_lateness_is_in_the_bucket_that_it_belongs_to() -> None:
    counts = SharedCounts()
    counting = Counting(counts)
    for late in ([5], [6, 7], [5, 100, 10_000_000], [-3]):
        counting.begun(begun("mail", *late))
    samples = told(CountsCollector(counts))

    def below(bound: str) -> float | None:
        return value(samples, "bide_lateness_seconds_bucket", topic="mail", le=bound)

    assert (below("0.005"), below("0.01"), below("0.1"), below("1800.0"), below("+Inf")) == (3, 5, 6, 6, 7)
    assert len([name for name, _ in samples if name == "bide_lateness_seconds_bucket"]) == len(SECONDS) + 1
    assert value(samples, "bide_lateness_seconds_sum", topic="mail") == pytest.approx(10_000.123)


def test_further_topics_are_told_as_other() -> None:
    counts = SharedCounts(topics=2)
    counting = Counting(counts)
    for topic in ("a", "b", "c", "d", "a", "d", "other"):
        counting.sent(sent(topic))
    samples = told(CountsCollector(counts))
    found = {
        topic: value(samples, "bide_sent_total", topic=topic, outcome="created") for topic in ("a", "b", "c", "d", "other")
    }
    assert found == {"a": 2, "b": 1, "c": None, "d": None, "other": 4}


def test_a_call_that_fails_is_counted_by_the_name_of_its_error() -> None:
    counts = SharedCounts()
    counting = Counting(counts)
    for error in (None, EngineError("no"), EngineError("no"), KeyboardInterrupt()):
        counting.called(EngineCalled("put", ["t"], 1, 0.002, error))
    counting.called(EngineCalled("wait", ["t"], 1, 30.0, None))
    samples = told(CountsCollector(counts))
    assert value(samples, "bide_engine_errors_total", verb="put", error="EngineError") == 2
    assert value(samples, "bide_engine_call_seconds_count", verb="put") == 4
    assert value(samples, "bide_engine_call_seconds_count", verb="wait") is None


def _count_in_child(counts: SharedCounts, process: int, times: int) -> None:
    counting = Counting(counts, process)
    for number in range(times):
        counting.sent(sent(f"t{number % 30}"))
        counting.begun(begun(f"t{29 - number % 30}", 5))


def test_processes_count_in_one_file_and_a_successor_goes_on() -> None:
    counts = SharedCounts(nameless_file(), processes=3, topics=20)
    fork = get_context("fork")
    for _ in range(2):
        children = [fork.Process(target=_count_in_child, args=(counts, number, 300)) for number in range(3)]
        for each in children:
            each.start()
        for each in children:
            each.join()
            assert each.exitcode == 0
    samples = told(CountsCollector(counts, workers=3))
    created = {series: each for series, each in samples.items() if series[0] == "bide_sent_total"}
    assert sum(created.values()) == 2 * 3 * 300
    assert len(created) == 21  # twenty topics, the same ones in all processes, and other
    assert value(samples, "bide_sent_total", topic="other", outcome="created") == 2 * 3 * 100
    assert sum(each for (name, _), each in samples.items() if name == "bide_begun_total") == 2 * 3 * 300
    # what the first three had begun is not running any more
    assert sum(each for (name, _), each in samples.items() if name == "bide_running") == 3 * 300


def test_a_fork_adds_nothing_to_the_numbers_of_its_parent() -> None:
    counts = SharedCounts(nameless_file())
    counting = Counting(counts)
    counting.sent(sent("mail"))
    child = get_context("fork").Process(target=counting.sent, args=(sent("mail", 9),))
    child.start()
    child.join()
    assert value(told(CountsCollector(counts)), "bide_sent_total", topic="mail", outcome="created") == 1


def test_many_threads_count_every_message() -> None:
    counts = SharedCounts(topics=5)
    counting = Counting(counts)

    def count() -> None:
        for number in range(2_000):
            counting.sent(sent(f"t{number % 10}"))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    samples = told(CountsCollector(counts))
    assert sum(each for (name, _), each in samples.items() if name == "bide_sent_total") == 8_000


@pytest.mark.parametrize("name", ["é" * 64, "x" * 128, "x" * 129])
def test_a_name_is_whole_or_it_is_other(name: str) -> None:
    counts = SharedCounts(nameless_file())
    counts.topics.row(name)
    fits = len(name.encode()) <= 128
    assert counts.topics.each() == (["other", name] if fits else ["other"])
