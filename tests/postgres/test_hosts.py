"""URLs with several servers, of which one is the primary."""

import threading

import pytest
from psycopg_pool import ConnectionPool

from bide import Queue
from bide.engines.base import Settings
from bide.engines.postgres.location import read
from bide.errors import BadUrl, ConfigError, EngineError
from tests.servers.fixtures import NewPostgres, NewStandby


def test_a_url_may_name_several_servers() -> None:
    address = read(Settings(url="postgres://u:s%40cret@one:5432,two:5433/db?timeout=3"))
    assert address.shown == "postgres://one:5432,two:5433/db"
    assert (address.conninfo["host"], address.conninfo["port"]) == ("one,two", "5432,5433")
    assert address.connecting()["target_session_attrs"] == "read-write"
    primary = read(Settings(url="postgres://one,two/db?target_session_attrs=primary"))
    assert primary.connecting()["target_session_attrs"] == "primary"
    assert "target_session_attrs" not in read(Settings(url="postgres://one/db")).connecting()
    assert read(Settings(url="postgres://one,two:5433/db")).shown == "postgres://one,two:5433/db"
    assert read(Settings(url="postgres://[::1]:5432/db")).shown == "postgres://[::1]:5432/db"
    assert read(Settings(url="postgres:///db")).shown == "postgres:///db"


@pytest.mark.parametrize(
    "url", ["postgres://u:pass/word@h/db", "postgres://h:99999/db", "postgres://a:1,b:x/db", "postgres://h:٣/db"]
)
def test_a_url_with_a_wrong_port_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(BadUrl) as refused:
        read(Settings(url=url))
    assert "pass" not in str(refused.value).replace("password", "")


@pytest.mark.parametrize("attrs", ["standby", "prefer-standby", "read-only", "nonsense", ""])
def test_a_url_that_asks_for_a_server_without_writes_is_refused(attrs: str) -> None:
    with pytest.raises(ConfigError, match="target_session_attrs must be read-write, primary or any"):
        Queue(f"postgres://one,two/db?target_session_attrs={attrs}")
    pool = ConnectionPool("host=one,two", kwargs=lambda: {"target_session_attrs": attrs}, open=False)
    with pytest.raises(ConfigError, match="target_session_attrs must be"), Queue("postgres://", client=pool) as queue:
        queue.stats()


def test_two_namespaces_in_one_queue_are_refused() -> None:
    for url in ("postgres://one/db?namespace=a", "postgres://one/db?namespace=bide"):
        with pytest.raises(ConfigError, match="name it in one of the two places"):
            Queue(url, namespace="b")
    assert read(Settings(url="postgres://one/db?namespace=a", namespace="a")).schema == "bide_a"
    assert read(Settings(url="postgres://one/db?namespace=a")).schema == "bide_a"


@pytest.mark.parametrize(
    "option",
    [
        "sslmode=nonsense", "sslmode=require", "channel_binding=nonsense", "connect_timeout=soon", "keepalives=many",
        "ssl_min_protocol_version=9", "service=none", "options=-c%20nonsense=1", "options=-c%20work_mem=much",
    ],
)  # fmt: skip
def test_an_option_that_libpq_or_the_server_refuses_is_not_tried_again(postgres_url: str, option: str) -> None:
    with pytest.raises(ConfigError, match="can't use an option of the URL: "), Queue(f"{postgres_url}?{option}") as queue:
        queue.stats()


def test_a_url_sets_options_of_the_server(postgres_url: str) -> None:
    with Queue(f"{postgres_url}?options=-c%20work_mem=5MB%20-c%20application_name%3Dshop%2Bme") as queue:
        queue.send("t")
        assert queue.stats("t").pending == 1


@pytest.mark.timeout(180)
def test_what_was_accepted_before_a_failover_to_a_synchronous_standby_is_there_after_it(
    new_postgres: NewPostgres, new_standby: NewStandby
) -> None:
    """A queue that was open all the time, and its receiver, go on at the new primary."""
    primary = new_postgres()
    standby = new_standby(primary)
    standby.make_synchronous()
    url = f"postgres://postgres@127.0.0.1:{standby.port},127.0.0.1:{primary.port}/postgres?timeout=1"
    accepted: list[str] = []
    enough = threading.Event()
    stop = threading.Event()

    def send() -> None:
        with Queue(url) as queue:
            while not stop.is_set():
                try:
                    accepted.append(queue.send("t").id)
                except EngineError:
                    continue
                if len(accepted) >= 50:
                    enough.set()

    sender = threading.Thread(target=send)
    with Queue(url) as queue:
        assert queue.receive("t") == []
        sender.start()
        assert enough.wait(60)
        enough.clear()
        primary.kill()
        before = len(accepted)
        standby.promote()
        while len(accepted) < before + 50:
            assert sender.is_alive()
        stop.set()
        sender.join(60)
        got: set[str] = set()
        while found := queue.receive("t", limit=1_000, wait=1):
            got.update(each.id for each in found)
            queue.ack_many(found)
        assert set(accepted) <= got
