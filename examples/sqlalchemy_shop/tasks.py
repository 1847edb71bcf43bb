"""The queue and its task, in the shop's own database."""

from bide import AsyncQueue, current

from .shop import URL, Order, sessions

queue = AsyncQueue(URL)


@queue.task("order.pack", max_attempts=10)
async def pack(order: int) -> None:
    async with sessions.begin() as session:
        found = await session.get_one(Order, order, with_for_update=True)  # it is there: it was committed with its message
        found.packed += 1
        await session.flush()
        # The work and its ack are committed together. So it is done once, also if this process is killed at any time.
        await current().ack(connection=session)
