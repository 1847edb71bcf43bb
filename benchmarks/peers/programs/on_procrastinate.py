"""Procrastinate on PostgreSQL. A batch has one due time, so messages with times of their own are sent one by one."""

import sys
from collections.abc import Sequence
from datetime import UTC, datetime

import uvloop
from procrastinate import App, PsycopgConnector
from workload import URL, WORK, Item, handle_in_loop, main_in_loop, parts

app = App(connector=PsycopgConnector(conninfo=URL))


@app.task(name="work")
async def work(payload: str) -> None:
    await handle_in_loop(payload)


async def send(payload: str, due: float | None) -> None:
    await _due(due).defer_async(payload=payload)


async def send_many(items: Sequence[Item]) -> None:
    one_time = WORK in ("drain", "burst", "batch", "memory", "crash")
    for part in parts(items, 1_000 if one_time else 1):
        await _due(part[0][1]).batch_defer_async(*({"payload": payload} for payload, _ in part))


def _due(due: float | None):  # type: ignore[no-untyped-def]
    return work if due is None else work.configure(schedule_at=datetime.fromtimestamp(due, UTC))


async def run() -> None:
    async with app.open_async():
        if sys.argv[1] == "prepare":
            await app.schema_manager.apply_schema_async()
        elif sys.argv[1] == "send":
            await main_in_loop(send, send_many)
        else:
            await app.run_worker_async(concurrency=20, fetch_job_polling_interval=0.1, delete_jobs="successful")


if __name__ == "__main__":
    uvloop.run(run())
