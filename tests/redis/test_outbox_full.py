"""An outbox before a Redis server that is full for some of its messages only."""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide import OutcomeUnknown, Queue, QueueFull, Unavailable
from bide.engines.base import NewMessage, Ref
from bide.engines.redis.sync.shard import Shard
from tests.redis.away import keys_of
from tests.servers.fixtures import NewRedis


@pytest.mark.always
def test_a_message_that_fills_the_server_while_it_is_read_keeps_no_others_back(new_redis: NewRedis, tmp_path: Path) -> None:
    server = new_redis(maxmemory_policy="noeviction")
    with server.client() as client:
        empty = client.info("memory")["used_memory"]
        client.config_set("maxmemory", empty + 2**23)
    store = f"sqlite:///{tmp_path}/app.db"
    with Queue(server.url, outbox=store, max_body=2**26) as queue, closing(sqlite3.connect(tmp_path / "app.db")) as own:
        with Queue(store) as there:
            there.stats()
        queue.send("t", "x" * 2**25, connection=own)
        queue.send_many("t", range(20), connection=own)
        own.commit()
        with pytest.raises(QueueFull):
            queue.relay(wait=False)
        with server.client() as client:
            kept = client.info("memory")["used_memory"]  # of what it was sent it may have a copy still
            client.config_set("maxmemory", kept + 2**22)
        with pytest.raises(QueueFull):
            queue.relay(wait=False)
        assert queue.stats("t").ready == 20


def test_a_later_replacement_does_not_overtake_one_that_a_full_server_has_refused(
    new_redis: NewRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = new_redis(maxmemory_policy="noeviction")
    store = f"sqlite:///{tmp_path}/app.db"
    put = Shard.put
    refused: list[Exception] = []

    def put_when_full(*args: Any, **options: Any) -> Any:
        """The first piece of a batch finds no room, and the next one would."""
        if refused:
            return put(*args, **options)
        with server.client() as client:
            client.config_set("maxmemory", 1)
            try:
                return put(*args, **options)
            except QueueFull as error:
                refused.append(error)
                raise
            finally:
                client.config_set("maxmemory", 0)

    with Queue(server.url, outbox=store) as queue, closing(sqlite3.connect(tmp_path / "app.db")) as own:
        with Queue(store) as there:
            there.stats()
        for version in range(30):  # 3 MB, so several pieces
            queue.send("t", f"{version:02}" + "x" * 100_000, key="k", if_exists="replace", delay="1h", connection=own)
        own.commit()
        monkeypatch.setattr(Shard, "put", put_when_full)
        assert queue.relay(wait=False) == 30
        assert refused
        [found] = queue.session.engine().get([Ref(topic="t", key="k")])
        assert found is not None
        assert found.body[1:3] == b"29"


def test_a_message_that_is_too_large_for_one_of_several_servers_keeps_no_others_back(
    masters_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither smaller ones for the same server nor any for another one; but for later ones of its key."""
    store = f"sqlite:///{tmp_path}/app.db"
    others, (large, *small) = keys_of(0, 5), keys_of(2, 6)
    put, tries = Shard.put, list[int]()

    def nearly_full(self: Shard, messages: Sequence[NewMessage], *args: Any, **options: Any) -> Any:
        if self.number == 2 and any(len(each.body) >= 10_000 for each in messages):
            tries.append(len(messages))
            raise QueueFull("The server is full.")
        return put(self, messages, *args, **options)

    with Queue(masters_url, outbox=store) as queue, closing(sqlite3.connect(tmp_path / "app.db")) as own:
        with Queue(store) as there:
            there.stats()
        for key in (large, *[each for pair in zip(others, small, strict=True) for each in pair]):
            queue.send("t", "x" * (10_000 if key == large else 10), key=key, connection=own)
        queue.send("t", "later", key=large, if_exists="replace", connection=own)
        queue.send_many("t", ["x" * 10_000] * 20, connection=own)
        own.commit()
        queue.stats()
        monkeypatch.setattr(Shard, "put", nearly_full)
        with pytest.raises(QueueFull):
            queue.relay(wait=False)
        engine = queue.session.engine()
        found = engine.get([Ref(topic="t", key=key) for key in (large, *others, *small)])
        assert [each is not None for each in found] == [False, *[True] * 10]
        assert len(tries) <= 12  # what is as large as one that was refused is not tried by itself
        monkeypatch.setattr(Shard, "put", put)
        queue.relay(wait=False)
        assert queue.stats("t").ready == 31
        [last] = engine.get([Ref(topic="t", key=large)])
        assert last is not None
        assert last.body == b'"later"'


def test_one_of_several_servers_that_is_full_keeps_back_nothing_for_the_others(
    masters_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much waits for it, of any size: so claims find only that, for a while."""
    store = f"sqlite:///{tmp_path}/app.db"
    [live], [full] = keys_of(0, 1), keys_of(2, 1)
    put, tries = Shard.put, list[int]()

    def put_when_full(self: Shard, messages: Sequence[NewMessage], *args: Any, **options: Any) -> Any:
        if self.number == 2:
            tries.append(len(messages))
            raise QueueFull("The server is full.")
        return put(self, messages, *args, **options)

    monkeypatch.setattr(Shard, "put", put_when_full)
    with Queue(masters_url, outbox=store) as queue, closing(sqlite3.connect(tmp_path / "app.db")) as own:
        with Queue(store) as there:
            there.stats()
        for size in range(1_000):
            queue.send("t", "x" * size, key=f"{full}", if_exists="keep", connection=own)
        queue.send("t", "live", key=live, connection=own)
        own.commit()
        with pytest.raises(QueueFull):
            queue.relay(wait=False)
        assert [each.body for each in queue.messages("t")] == ["live"]
        assert len(tries) <= 20


@pytest.mark.parametrize(
    "error", [Unavailable("No answer."), OutcomeUnknown("No answer.")], ids=lambda each: type(each).__name__
)
def test_beside_a_silent_server_one_that_is_full_for_a_large_message_takes_small_ones(
    masters_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Nothing of the first batch is done, and each of the two fails for its own reason."""
    store = f"sqlite:///{tmp_path}/app.db"
    away, (large, *small) = keys_of(1, 5), keys_of(2, 21)
    put = Shard.put

    def failing(self: Shard, messages: Sequence[NewMessage], *args: Any, **options: Any) -> Any:
        if self.number == 1:
            raise error
        if self.number == 2 and any(len(each.body) >= 10_000 for each in messages):
            raise QueueFull("The server is full.")
        return put(self, messages, *args, **options)

    monkeypatch.setattr(Shard, "put", failing)
    with Queue(masters_url, outbox=store) as queue, closing(sqlite3.connect(tmp_path / "app.db")) as own:
        with Queue(store) as there:
            there.stats()
        for key in (*away, large, *small):
            queue.send("t", "x" * (10_000 if key == large else 10), key=key, connection=own)
        own.commit()
        with pytest.raises(type(error), match=r"^No answer\. The server is full\.$"):
            queue.relay(wait=False)
        found = queue.session.engine().get([Ref(topic="t", key=key) for key in (large, *small)])
    assert [each is not None for each in found] == [False, *[True] * 20]
