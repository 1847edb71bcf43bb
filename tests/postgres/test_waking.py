"""Receivers that sleep until the server notifies one of them."""

import asyncio
from typing import Any

import psycopg
import pytest

from bide.engines.base import Settings
from bide.engines.postgres import source
from bide.engines.postgres.statements import AsyncLimited


@pytest.mark.server
@pytest.mark.parametrize("ends", ["cancelled", "closed"])
async def test_a_receiver_that_ends_while_it_begins_to_listen_leaves_no_connection_open(
    postgres_url: str, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = source(Settings(url=postgres_url)).aio()
    await engine.open()
    begun, let_go, made = asyncio.Event(), asyncio.Event(), list[AsyncLimited]()
    execute = AsyncLimited.execute

    async def listens(connection: AsyncLimited, query: Any, *args: Any, **options: Any) -> psycopg.AsyncCursor[Any]:
        if query.startswith(b"listen"):
            made.append(connection)
            begun.set()
            await let_go.wait()
        return await execute(connection, query, *args, **options)

    monkeypatch.setattr(AsyncLimited, "execute", listens)
    waiting = asyncio.create_task(engine.wait(["mail"], 20))
    await asyncio.wait_for(begun.wait(), 20)
    if ends == "cancelled":
        waiting.cancel()
        await asyncio.wait({waiting})
        await engine.close()
    else:
        await engine.close()
        let_go.set()
        await asyncio.wait_for(waiting, 20)
    assert made
    assert all(each.closed for each in made)
