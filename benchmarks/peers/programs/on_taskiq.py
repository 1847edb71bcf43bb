"""taskiq: the stream broker, which acknowledges, and the list of schedules. A scheduler sends what is due."""

from datetime import UTC, datetime

import uvloop
from taskiq import TaskiqScheduler
from taskiq_redis import ListRedisScheduleSource, RedisStreamBroker
from workload import URL, handle_in_loop, main_in_loop, send_at_once

broker = RedisStreamBroker(URL)
source = ListRedisScheduleSource(URL)
scheduler = TaskiqScheduler(broker, [source])


@broker.task(task_name="work")
async def work(payload: str) -> None:
    await handle_in_loop(payload)


async def sending() -> None:
    await broker.startup()
    await source.startup()

    async def send(payload: str, due: float | None) -> None:
        if due is None:
            await work.kiq(payload)
        else:
            await work.schedule_by_time(source, datetime.fromtimestamp(due, UTC), payload)

    await main_in_loop(send, send_at_once(send))


if __name__ == "__main__":
    uvloop.run(sending())
