"""arq. It looks for jobs every 10 ms instead of every half second, and keeps no results."""

import asyncio
import sys
from datetime import UTC, datetime
from typing import Any, ClassVar

import uvloop
from arq import create_pool, run_worker
from arq.connections import RedisSettings
from workload import URL, handle_in_loop, main_in_loop, send_at_once

REDIS = RedisSettings.from_dsn(URL)


async def work(context: dict[str, Any], payload: str) -> None:
    await handle_in_loop(payload)


class Settings:
    functions: ClassVar = [work]
    redis_settings = REDIS
    poll_delay = 0.01
    max_jobs = 200
    keep_result = 0
    log_results = False


async def sending() -> None:
    pool = await create_pool(REDIS)

    async def send(payload: str, due: float | None) -> None:
        await pool.enqueue_job("work", payload, _defer_until=datetime.fromtimestamp(due, UTC) if due else None)

    await main_in_loop(send, send_at_once(send))


if __name__ == "__main__":
    if sys.argv[1] == "send":
        uvloop.run(sending())
    else:
        asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
        asyncio.set_event_loop(asyncio.new_event_loop())
        run_worker(Settings)  # type: ignore[arg-type]
