"""Counts of large topics in PostgreSQL: estimates that cost no more when the topic grows."""

import re

import psycopg
import pytest

from bide import Outgoing, Queue
from bide.cli import main
from bide.engines.postgres.rows import EXACT
from tests.postgres.reading import read
from tests.servers.fixtures import NewPostgres

MANY = 15_000


@pytest.fixture
def large(postgres_url: str) -> str:
    """The URL of a queue with many scheduled messages, of which the server has no statistics yet."""
    with Queue(postgres_url) as queue:
        queue.send_many("mail", [Outgoing(delay="1h")] * MANY)
    return postgres_url


def test_a_count_beyond_ten_thousand_is_an_estimate_from_the_table_as_it_is(large: str) -> None:
    with Queue(large) as queue:
        queue.send("mail")
        stats = queue.stats("mail")
    assert stats.about
    assert abs(stats.scheduled - MANY) < MANY / 10
    assert stats.ready == 1


def test_an_estimate_follows_a_backlog_that_is_drained(new_postgres: NewPostgres) -> None:
    """While nobody vacuums, the table grows, as each claim writes a new version of its row."""
    left = {"mail": 60_000, "news": 20_000}
    server = new_postgres(autovacuum=False, synchronous_commit=False)
    with Queue(server.url) as queue:
        for topic, many in left.items():
            queue.send_many(topic, [Outgoing(delay="1h" if topic == "news" else None)] * many)
        server.ask("analyze bide.message")
        while left["mail"] > EXACT:
            for topic, stats in queue.stats().topics.items():
                assert stats.about
                assert abs(stats.ready + stats.scheduled - left[topic]) < left[topic] / 4
            for _ in range(12):
                received = queue.receive("mail", limit=1_000)
                left["mail"] -= queue.ack_many(received).count(True)
        assert server.ask("select pg_relation_size('bide.message') / 8192 > 1200") == [(True,)]  # a part of it is looked at


def test_counts_read_no_more_of_a_larger_topic(large: str) -> None:
    with psycopg.connect(large) as client:
        query = f"select bide.stats_of(array['mail'], {EXACT}, false, null, null, null, null)"
        assert EXACT < read(client, "message_due", query) < EXACT + 100
        # also in a window, if that may be an estimate
        query = f"select bide.stats_of(array['mail'], {EXACT}, true, 0, {2**50}, 4, null)"
        assert 2 * EXACT < read(client, "message_due", query) < 2 * EXACT + 100


def test_what_falls_due_in_a_large_topic_is_an_estimate_that_says_so(large: str) -> None:
    with Queue(large) as queue:
        stats = queue.stats("mail", due_within=["1m", "2h", "3h"])
    assert stats.about
    soon, within, later = stats.due_within
    assert soon == 0
    assert abs(within - MANY) < MANY / 10
    assert later == within


def test_a_count_of_up_to_ten_thousand_is_exact(postgres_url: str) -> None:
    with Queue(postgres_url) as queue:
        queue.send_many("mail", [Outgoing(delay="1h")] * EXACT)
        stats = queue.stats("mail")
    assert (stats.scheduled, stats.about) == (EXACT, False)


@pytest.mark.parametrize("command", [["stats", "mail"], ["topics"]])
def test_the_command_line_says_about(large: str, command: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*command, "--url", large]) == 0
    assert re.search(r"\babout 1\d,\d{3}\b", capsys.readouterr().out)


def test_a_purge_deletes_all_also_of_a_topic_that_is_counted_about(large: str) -> None:
    with psycopg.connect(large, autocommit=True) as client:
        client.execute("update pg_class set reltuples = 0 where oid = 'bide.message'::regclass")  # an estimate far too low
    with Queue(large) as queue:
        assert queue.purge("mail", state="scheduled") == MANY
