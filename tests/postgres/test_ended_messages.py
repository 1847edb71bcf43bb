"""What ended messages cost whose rows an old snapshot keeps, and that nothing is lost by passing over them."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from bide import Queue
from bide.engines.postgres import long_transactions, recent
from bide.engines.postgres.sync import engine as sync_engine
from tests.postgres.reading import read

MANY = 1_000
FAR = 2**62


@pytest.fixture
def ended(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """A connection to a database in which many messages have ended since a snapshot was taken that is held."""
    with Queue(postgres_url) as queue:
        queue.stats()  # the tables are there
        with psycopg.connect(postgres_url) as other, psycopg.connect(postgres_url) as client:
            other.execute("set transaction isolation level repeatable read")
            other.execute("select count(*) from bide.message")
            queue.send_many("mail", [None] * MANY)
            queue.ack_many(queue.receive("mail", limit=MANY, lease=0.001))
            yield client
            other.rollback()


def now(client: psycopg.Connection[Any]) -> int:
    [found] = client.execute("select bide.engine_us(null, false) / 1000").fetchall()
    client.rollback()
    return int(found[0])


def test_a_claim_with_a_bound_does_not_walk_over_ended_messages(ended: psycopg.Connection[Any]) -> None:
    claim = "select bide.hand_out('{mail}', array[%s::bigint], 100, 60000, 'r', '{}', null)"
    assert read(ended, "message_due", claim, -1) >= MANY
    assert read(ended, "message_due", claim, now(ended)) == 0


def test_upkeep_with_a_bound_does_not_walk_over_ended_leases(ended: psycopg.Connection[Any]) -> None:
    tend = "select bide.tend(1000, null, 1, 1, %s, null)"
    assert read(ended, "message_lease", tend, -1) >= MANY
    assert read(ended, "message_lease", tend, now(ended)) == 0


def test_a_send_does_not_walk_over_ended_messages(ended: psycopg.Connection[Any]) -> None:
    send = "select bide.accept(null, '{mail}', array[''::bytea], array[%s::bigint], null, null, '{1}'"
    send += f"{', null' * 11}, {FAR}, '{{}}', null)"
    for delay in (0, 900_000):
        assert read(ended, "message_due", send, delay) == 0


@pytest.mark.parametrize("index", ["message_pkey", "message_lease"])
def test_the_verbs_of_a_delivery_find_it_by_its_id_also_when_statistics_say_that_the_table_is_empty(
    ended: psycopg.Connection[Any], postgres_url: str, index: str
) -> None:
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute("analyze bide.message")
    with Queue(postgres_url) as queue:
        queue.send_many("mail", [None] * 3)
        first = now(ended) - 60_000
        assert read(ended, index, "select bide.hand_out('{mail}', array[%s::bigint], 3, 60000, 'r', '{}', null)", first) < 50
        held = queue.receive("mail", limit=3)
        args = [[int(each.id, 16) for each in held], ["mail"], [int(each.token) for each in held]]
    assert len(held) == 3
    assert read(ended, index, "select bide.extend(%s, %s, %s, 60000, null)", *args) < 50
    query = "select bide.end_deliveries('s', %s, %s, %s, null, null, null, null, null, null, false, 1, null)"
    assert read(ended, index, query, *args) < 50
    verdicts = [["retry"] * 3, [60_000] * 3, [None] * 3]
    query = "select bide.end_deliveries('s', %s, %s, %s, %s, %s, %s::text[], null, null, null, false, 1, null)"
    assert read(ended, index, query, *args, *verdicts) < 100


def test_a_claim_finds_what_its_request_was_given_by_the_request_also_when_another_index_seems_as_good(
    ended: psycopg.Connection[Any], postgres_url: str
) -> None:
    """That of requests is taller by then, so statistics of an empty table would have the planner walk over all leases."""
    with psycopg.connect(postgres_url, autocommit=True) as other:
        other.execute(
            "insert into bide.message (id, due, until, most, level, topic, body, request) "
            "select 1000000 + i, 0, i, 3, 1, 'mail', '', 'request ' || md5(i::text) from generate_series(1, 20000) as i"
        )
        other.execute("delete from bide.message")
        other.execute("analyze bide.message")
    claim = "select bide.hand_out('{mail}', array[%s::bigint], 100, 60000, 'r', '{}', null)"
    assert read(ended, "message_lease", claim, now(ended)) == 0


@pytest.fixture
def all_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """All claims count as slow."""
    monkeypatch.setattr(recent, "SLOW", -1)
    monkeypatch.setattr(recent, "SLOW_EACH", 0)


def come_late(postgres_url: str, queue: Queue) -> int:
    """Have a message be there that was due a minute ago, as after a late commit, and say when it was."""
    sent = queue.send("mail", delay=3600)
    with psycopg.connect(postgres_url) as client:
        [[due]] = client.execute(
            "update bide.message set due = bide.engine_us(null, false) / 1000 - 60000 where id = %s returning due",
            [int(sent.id, 16)],
        ).fetchall()
    return int(due)


@pytest.mark.usefixtures("all_slow")
@pytest.mark.parametrize("wake", ["listen", "poll"])
def test_a_message_that_comes_late_is_found_before_a_sweep(
    postgres_url: str, wake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Given a receiver that begins behind a message
    monkeypatch.setattr(recent, "EVERY", 3_600.0)
    with Queue(f"{postgres_url}?wake={wake}") as queue:
        assert not queue.receive("mail")
        come_late(postgres_url, queue)
        assert not queue.receive("mail")
        # When it has to look from the beginning soon, then it sleeps no longer than that
        monkeypatch.setattr(recent, "EVERY", 1.0)
        assert len(queue.receive("mail", wait=4)) == 1


@pytest.mark.usefixtures("all_slow")
def test_a_notification_of_an_earlier_message_lowers_the_bound(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "EVERY", 3_600.0)
    with Queue(postgres_url) as queue, Queue(postgres_url) as other:
        engine: Any = queue.session.engine()
        while engine._engine._waking is None or engine._engine._waking._listening is None:
            assert not queue.receive("mail", wait=0.1)
        due = come_late(postgres_url, other)
        with psycopg.connect(postgres_url) as client:
            client.execute("select pg_notify('bide', %s)", [f"mail {due}"])
        assert len(queue.receive("mail", wait=4)) == 1


@pytest.mark.usefixtures("all_slow")
def test_messages_of_a_paused_topic_are_handed_out_when_it_goes_on(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "EVERY", 3_600.0)
    with Queue(postgres_url) as queue:
        queue.pause("mail")
        come_late(postgres_url, queue)
        assert not queue.receive("mail")
        queue.resume("mail")
        assert len(queue.receive("mail")) == 1


@pytest.mark.usefixtures("all_slow")
def test_a_message_whose_lease_ended_is_handed_out_again(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "EVERY", 3_600.0)
    with Queue(postgres_url) as queue:
        come_late(postgres_url, queue)
        [first] = queue.receive("mail", lease=1)
        assert not queue.receive("mail")
        [second] = queue.receive("mail", wait=20)
        assert (second.id, second.attempt) == (first.id, 2)


@pytest.mark.usefixtures("all_slow")
def test_a_message_that_is_released_can_be_received_at_once(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recent, "EVERY", 3_600.0)
    with Queue(postgres_url) as queue:
        come_late(postgres_url, queue)
        [first] = queue.receive("mail")
        assert not queue.receive("mail")
        first.release()
        [second] = queue.receive("mail")
        assert (second.id, second.attempt) == (first.id, 1)


# the warning


@pytest.mark.usefixtures("ended")
def test_bide_warns_of_a_transaction_that_is_open_for_long_and_names_it(
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    at_once = long_transactions.FIND.replace("30 seconds", "0 seconds").replace("1000::bigint", "0::bigint")
    monkeypatch.setattr(sync_engine, "FIND", at_once)
    monkeypatch.setattr(long_transactions, "LOOK", 0.0)
    with psycopg.connect(postgres_url, application_name="report") as other, Queue(postgres_url) as queue:
        other.execute("set transaction isolation level repeatable read")
        other.execute("select count(*) from bide.message")
        queue.receive("mail")
        pid = other.info.backend_pid
    named = f"process {pid}, user postgres, application_name 'report', idle in transaction"
    told = [record.getMessage() for record in caplog.records if record.name == "bide.postgres"]
    assert [named in each for each in told].count(True) == 1


def test_each_transaction_is_warned_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = [1_000.0]
    transactions = long_transactions.LongTransactions(lambda: clock[0])
    found = [(pid, "shop", None, "active", "2026-11-23 12:00:00+00", 40, 5_000) for pid in (1, 2)]
    counts = []
    for seconds in (0, 15, 44, 1):
        clock[0] += seconds
        transactions.warn(found)
        counts.append(len(caplog.records))
    assert counts == [2, 2, 2, 4]


def test_transactions_are_looked_for_four_times_a_minute() -> None:
    clock = [1_000.0]
    transactions = long_transactions.LongTransactions(lambda: clock[0])
    looks = []
    for _ in range(60):
        clock[0] += 1.0
        looks.append(transactions.is_time())
    assert looks.count(True) == 4


def test_what_tells_late_of_messages_reads_no_whole_table_also_when_statistics_say_that_it_is_empty(postgres_url: str) -> None:
    with Queue(postgres_url) as queue, psycopg.connect(postgres_url, autocommit=True) as client:
        queue.stats()
        client.execute("vacuum analyze bide.message")
        with client.transaction():
            for _ in range(7):  # after five, plans are kept
                client.execute("select bide.tell_late('{t}', %s)", [FAR])
            client.execute("select bide.put_plain('r', 't', '', 60000, null, 1, 3, null, null, %s, false, null)", [FAR])
            read_by = "select seq_scan, idx_scan > 0 from pg_stat_xact_user_tables where relid = 'bide.message'::regclass"
            assert client.execute(read_by).fetchall() == [(0, True)]
