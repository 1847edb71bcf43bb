"""Counts of large topics in PostgreSQL: estimates that cost no more when the topic grows."""

import re

import psycopg
import pytest

from bide import Outgoing, Queue
from bide.cli import main
from bide.engines.postgres.rows import EXACT
from tests.postgres.reading import read

MANY = 15_000


@pytest.fixture
def large(postgres_url: str) -> str:
    """The URL of a queue with many scheduled messages, of which the server's statistics are fresh."""
    with Queue(postgres_url) as queue:
        queue.send_many("mail", [Outgoing(delay="1h")] * MANY)
    with psycopg.connect(postgres_url, autocommit=True) as client:
        client.execute("analyze bide.message")
    return postgres_url


def test_a_count_beyond_ten_thousand_is_the_estimate_of_the_planner(large: str) -> None:
    with Queue(large) as queue:
        queue.send("mail")
        stats = queue.stats("mail")
    assert stats.about
    assert abs(stats.scheduled - MANY) < MANY / 10
    assert stats.ready == 1


def test_counts_read_no_more_of_a_larger_topic(large: str) -> None:
    with psycopg.connect(large) as client:
        query = f"select bide.stats('mail', '{{}}', {EXACT}, null, null, null, null)"
        assert EXACT < read(client, "message_due", query) < EXACT + 100


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
