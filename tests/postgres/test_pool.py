"""A pool of psycopg as client=: bide connects as it does, with connections of its own."""

from typing import Any

import psycopg
import pytest
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from bide import AsyncQueue, Queue
from bide.errors import BadUrl, ConfigError, Unavailable


@pytest.mark.parametrize("kind", [ConnectionPool, AsyncConnectionPool])
async def test_queues_of_both_kinds_go_where_a_pool_goes(postgres_url: str, kind: Any) -> None:
    options = psycopg.conninfo.conninfo_to_dict(postgres_url)
    pool = kind(f"host={options.pop('host')}", kwargs={**options, "autocommit": True, "row_factory": None}, open=False)
    with Queue("postgres://?timeout=3", client=pool) as queue:
        queue.send("t", 1)
    async with AsyncQueue("postgres://", client=pool) as queue:
        [delivery] = await queue.receive("t")
        await delivery.ack()
    assert delivery.body == 1


def test_bide_opens_its_own_connections_and_leaves_the_pool_open(postgres_url: str) -> None:
    with ConnectionPool(postgres_url, min_size=1, max_size=1, open=True) as pool, pool.connection() as taken:
        with Queue("postgres://", client=pool) as queue:
            queue.send("t", 1, connection=taken)
            assert queue.stats("t").pending == 0
            taken.commit()
            assert queue.stats("t").pending == 1
        assert not pool.closed


def test_a_pool_may_tell_another_password_each_time(postgres_url: str) -> None:
    calls = []

    def kwargs() -> dict[str, Any]:
        calls.append(1)
        return {"password": f"token-{len(calls)}"}

    queue = Queue("postgres://", client=ConnectionPool(postgres_url, kwargs=kwargs, open=False))
    assert not calls
    queue.send("t", 1)
    assert len(calls) > 0
    queue.close()


def test_a_password_that_can_not_be_fetched_now_is_fetched_by_the_next_call(postgres_url: str) -> None:
    down = [True]

    def kwargs() -> dict[str, Any]:
        if down.pop():
            down.append(False)
            raise RuntimeError("secret: the vault is down")
        down.append(False)
        return {"password": "token"}

    queue = Queue("postgres://", client=ConnectionPool(postgres_url, kwargs=kwargs, open=False))
    with pytest.raises(Unavailable, match="raised RuntimeError, so nothing was done") as refused:
        queue.send("t", 1)
    assert "secret" not in str(refused.value)
    queue.send("t", 2)
    assert [each.body for each in queue.receive("t", limit=9)] == [2]
    queue.close()


@pytest.mark.parametrize("state", ["closed", "exhausted", "broken"])
def test_a_pool_that_gives_no_connections_still_tells_where_to_connect(postgres_url: str, state: str) -> None:
    def fail(connection: psycopg.Connection) -> None:
        raise RuntimeError("the pool's own connections are not good")

    pool = ConnectionPool(postgres_url, min_size=1, max_size=1, configure=fail if state == "broken" else None, open=True)
    try:
        if state == "exhausted":
            pool.getconn()
        elif state == "closed":
            pool.close()
        with Queue("postgres://", client=pool) as queue:
            queue.send("t", 1)
            assert queue.stats("t").pending == 1
    finally:
        pool.close()


async def conninfo() -> str:
    return "postgres://host/db"


@pytest.mark.parametrize(
    ("client", "said"),
    [
        (ConnectionPool("host=h password=secret nonsense=1", open=False), "try the pool by itself"),
        (ConnectionPool("host=h port=secret", open=False), "A port is not a number"),
        (ConnectionPool("host=a,b,c port=1,2 password=secret", open=False), "give each its port"),
        (AsyncConnectionPool(conninfo, open=False), "is an async function"),
        (ConnectionPool(lambda: b"secret", open=False), "is not a text"),  # type: ignore[arg-type, return-value]
        (ConnectionPool("host=h", kwargs=["secret"], open=False), "are not a dict"),  # type: ignore[arg-type]
        (object(), "client= is a object"),
    ],
    ids=["nonsense", "port", "ports", "async", "bytes", "list", "object"],
)
def test_a_client_that_can_not_be_used_is_refused_and_its_secrets_not_shown(client: object, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused, Queue("postgres://", client=client) as queue:
        queue.stats()
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["postgres://host", "postgres:///db", "postgres://?sslmode=require"])
def test_a_url_beside_a_pool_names_no_server(url: str) -> None:
    with pytest.raises(BadUrl, match="names none"):
        Queue(url, client=ConnectionPool("host=h", open=False))


def test_a_pool_is_shown_without_its_password() -> None:
    pool = ConnectionPool("postgres://u:secret@127.0.0.1:1/shop", open=False)
    queue = Queue("postgres://?timeout=0.1", client=pool)
    with pytest.raises(Unavailable, match=r"postgres://127\.0\.0\.1:1/shop") as refused:
        queue.send("t")
    assert "secret" not in f"{refused.value} {queue!r}"
    queue.close()
