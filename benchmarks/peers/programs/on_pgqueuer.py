"""pgqueuer on PostgreSQL, by asyncpg."""

import sys
import time
from collections.abc import Sequence
from datetime import timedelta

import asyncpg
import uvloop
from pgqueuer import PgQueuer
from pgqueuer.db import AsyncpgDriver
from pgqueuer.models import Job
from pgqueuer.queries import Queries
from workload import URL, Item, handle_in_loop, main_in_loop, parts

AT_ONCE = 100


def _after(due: float | None) -> timedelta:
    return timedelta(seconds=max(0.0, due - time.time()) if due else 0.0)


async def prepare(queries: Queries) -> None:
    await queries.install()
    await queries.optimize_autovacuum()


async def sending(queries: Queries) -> None:
    async def send(payload: str, due: float | None) -> None:
        await queries.enqueue("work", payload.encode(), execute_after=_after(due))

    async def send_many(items: Sequence[Item]) -> None:
        for part in parts(items):
            bodies: list[bytes | None] = [payload.encode() for payload, _ in part]
            times: list[timedelta | None] = [_after(due) for _, due in part]
            await queries.enqueue(["work"] * len(part), bodies, [0] * len(part), times)

    await main_in_loop(send, send_many)


async def working(driver: AsyncpgDriver) -> None:
    queue = PgQueuer(driver)

    @queue.entrypoint("work")
    async def work(job: Job) -> None:
        assert job.payload is not None
        await handle_in_loop(job.payload.decode())

    await queue.run(batch_size=AT_ONCE)


async def run() -> None:
    driver = AsyncpgDriver(await asyncpg.connect(URL))
    if sys.argv[1] == "prepare":
        await prepare(Queries(driver))
    elif sys.argv[1] == "send":
        await sending(Queries(driver))
    else:
        await working(driver)


if __name__ == "__main__":
    uvloop.run(run())
