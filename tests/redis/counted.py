"""What each script costs, in numbers that no load of the machine moves: commands that it calls, bytes that go to and fro."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import pytest
import redis

from bide.engines.redis.aio.connections import AsyncConnection
from bide.engines.redis.script import Script, scripts

OUTSIDE = {"evalsha", "eval", "info", "config", "script"}  # what no script calls


class Ran(NamedTuple):
    """One run of a script."""

    name: str
    calls: int
    sent: int  # bytes
    told: int


def size(value: Any) -> int:
    """Bytes, about: what is no text is a number."""
    if isinstance(value, list | tuple):
        return sum(map(size, value))
    return len(value) if isinstance(value, str | bytes) else 8


def called(client: redis.Redis) -> int:
    told = client.info("commandstats")
    names = ((name.removeprefix("cmdstat_").partition("|")[0], each) for name, each in told.items())
    return sum(int(each["calls"]) for name, each in names if name not in OUTSIDE)


@contextmanager
def counted(client: redis.Redis) -> Iterator[list[Ran]]:
    """All that async engines run from now on; nobody else may use the server."""
    for script in scripts().values():
        client.script_load(script.text)
    run, ran = AsyncConnection.run, list[Ran]()
    alone = asyncio.Lock()  # scripts of several shards run side by side, and what they call is counted for the whole server

    async def listen(
        connection: AsyncConnection, script: Script | None, keys: Sequence[str], args: Sequence[Any], **how: Any
    ) -> Any:
        async with alone:
            client.config_resetstat()
            answer = await run(connection, script, keys, args, **how)
            if script:
                ran.append(Ran(script.name, called(client), size(args), size(answer)))
            return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AsyncConnection, "run", listen)
        yield ran
