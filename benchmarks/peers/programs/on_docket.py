"""docket. Its client's pool has a connection for each task that runs, and more; nothing is kept of a task that has ended."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import uvloop
from docket import Docket, Worker
from workload import URL, Item, handle_in_loop, main_in_loop, parts

AT_ONCE = 1_000
LOOK = timedelta(milliseconds=10)


async def work(payload: str) -> None:
    await handle_in_loop(payload)


def _when(due: float | None) -> datetime | None:
    return datetime.fromtimestamp(due, UTC) if due else None


async def run() -> None:
    url = f"{URL}?max_connections={3 * AT_ONCE}"
    async with Docket(name="peer", url=url, execution_ttl=timedelta(0)) as docket:
        docket.register(work)

        async def send(payload: str, due: float | None) -> None:
            await docket.add(work, when=_when(due))(payload)

        async def send_many(items: Sequence[Item]) -> None:
            for part in parts(items):
                await docket.add_many([docket.call(work, when=_when(due))(payload) for payload, due in part])

        if sys.argv[1] == "send":
            await main_in_loop(send, send_many)
        else:
            async with Worker(docket, concurrency=AT_ONCE, minimum_check_interval=LOOK, scheduling_resolution=LOOK) as worker:
                await worker.run_forever()


if __name__ == "__main__":
    uvloop.run(run())
