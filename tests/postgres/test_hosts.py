"""URLs with several servers, of which one is the primary."""

import threading

import pytest

from bide import Queue
from bide.engines.base import Settings
from bide.engines.postgres.location import read
from bide.errors import BadUrl, EngineError
from tests.servers.fixtures import NewPostgres, NewStandby


def test_a_url_may_name_several_servers() -> None:
    address = read(Settings(url="postgres://u:s%40cret@one:5432,two:5433/db?timeout=3"))
    assert address.shown == "postgres://one:5432,two:5433/db"
    assert (address.conninfo["host"], address.conninfo["port"]) == ("one,two", "5432,5433")
    assert address.connecting()["target_session_attrs"] == "read-write"
    assert read(Settings(url="postgres://one,two/db?target_session_attrs=any")).connecting()["target_session_attrs"] == "any"
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
