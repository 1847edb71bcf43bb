"""oban-py on PostgreSQL, as it runs inside a program of yours."""

import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import uvloop
from oban import Oban, worker
from oban.schema import install
from workload import URL, Item, handle_in_loop, main_in_loop, parts

AT_ONCE = 1_000


@worker(queue="peer")
class PeerWork:
    async def process(self, job: Any) -> None:
        await handle_in_loop(job.args["payload"])


def _job(payload: str, due: float | None) -> Any:
    times = {"scheduled_at": datetime.fromtimestamp(due, UTC)} if due else {}
    return PeerWork.new({"payload": payload}, **times)  # type: ignore[attr-defined]


async def sending(pool: Any) -> None:
    async with Oban(pool=pool) as oban:

        async def send(payload: str, due: float | None) -> None:
            await oban.enqueue(_job(payload, due))

        async def send_many(items: Sequence[Item]) -> None:
            for part in parts(items):
                await oban.enqueue_many([_job(payload, due) for payload, due in part])

        await main_in_loop(send, send_many)


async def run() -> None:
    pool = await Oban.create_pool(URL)
    if sys.argv[1] == "prepare":
        await install(pool)
    elif sys.argv[1] == "send":
        await sending(pool)
    else:
        async with Oban(pool=pool, queues={"peer": AT_ONCE}, stager={"interval": 0.1}):
            await asyncio.Event().wait()
    await pool.close()


if __name__ == "__main__":
    uvloop.run(run())
