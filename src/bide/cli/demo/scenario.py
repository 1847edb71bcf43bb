"""What happens: customers come, order, pay or forget to, and the shop closes when all is done."""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta

from bide import AsyncQueue, Outgoing, Sent
from bide.cli.demo.board import Board, Order
from bide.cli.demo.plan import PACKING, PLEA, Customer, Plan
from bide.cli.demo.workers import Workers

PATIENCE = 5.0  # seconds after the last customer: what has not ended by then is lost
GLANCE = 0.05
RETURN = 8.0  # seconds after packing began: until then the stopped worker's parcels must be in other hands


class Shop:
    def __init__(self, queue: AsyncQueue, url: str, plan: Plan, board: Board) -> None:
        self._queue = queue
        self._plan = plan
        self._board = board
        self._record = board.record
        self._workers = Workers(queue, url, board, plan.refused)
        self._packing = datetime.now(UTC) + timedelta(seconds=PACKING)

    async def day(self) -> None:
        workers = self._workers
        async with asyncio.TaskGroup() as group:
            posts = (workers.clerk, workers.cart_keeper, workers.mailer, workers.worker_1, workers.worker_2)
            staff = [group.create_task(post()) for post in posts]
            async with asyncio.TaskGroup() as customers:
                customers.create_task(self._carts())
                for customer in self._plan.customers:
                    customers.create_task(self._serve(customer))
                customers.create_task(self._late_ack())
            await self._last_messages()
            for each in staff:
                each.cancel()

    async def _send(
        self, topic: str, order: int, *, delay: float | None = None, at: datetime | None = None, key: str | None = None
    ) -> Sent:
        sent = await self._queue.send(topic, {"order": order}, delay=delay, at=at, key=key)
        self._record.sent(sent)
        return sent

    async def _carts(self) -> None:
        """Every visitor's cart is to be forgotten in its own time."""
        carts = [Outgoing({"cart": number}, delay=delay) for number, delay in enumerate(self._plan.carts)]
        for sent in await self._queue.send_many("cart.forget", carts):
            self._record.sent(sent)
        self._board.say(f"{len(carts)} carts, each forgotten in its time", "faint")

    async def _serve(self, customer: Customer) -> None:
        await asyncio.sleep(customer.arrives)
        order, window, key = customer.order, customer.window, f"order:{customer.order}"
        deadline = await self._send("order.cancel", order, delay=window, key=key)
        reminder = await self._send("order.remind", order, delay=window / 2, key=key)
        self._board.orders[order] = Order(order, customer.item, deadline.due, window)
        self._board.say(f"{order} ordered, to be paid in {window} s")
        if customer.behaviour == "forgets":
            return
        await asyncio.sleep(customer.acts)
        if customer.behaviour == "asks for time":
            await self._more_time(order, deadline)
            await asyncio.sleep(PLEA / 2)
        await self._pay(order, deadline, reminder)

    async def _more_time(self, order: int, deadline: Sent) -> None:
        key = f"order:{order}"
        result = await self._queue.reschedule(topic="order.cancel", key=key, delay=PLEA)
        found = await self._queue.get(topic="order.cancel", key=key) if result else None
        if found is not None:
            self._record.moved[deadline.id] = found.due
            self._board.orders[order].due = found.due
        self._board.say(f"{order} asks for time: reschedule {result.name}", "odd")

    async def _pay(self, order: int, deadline: Sent, reminder: Sent) -> None:
        key = f"order:{order}"
        result = await self._queue.cancel(topic="order.cancel", key=key)
        self._record.cancel(deadline, result)
        self._record.cancel(reminder, await self._queue.cancel(topic="order.remind", key=key))
        if not result:
            self._board.say(f"{order} paid too late: cancel says {result.name}", "odd")
            return
        self._board.mark(order, "paid", "good")
        self._board.say(f"{order} paid: cancel says {result.name}", "good")
        await self._send("order.receipt", order)
        await self._send("order.pack", order, at=self._packing)

    async def _late_ack(self) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PACKING + RETURN):
                await self._workers.late_ack()

    async def _last_messages(self) -> None:
        """Wait until every message has ended, or for so long; then look at what the engine still holds."""
        for _ in range(round(PATIENCE / GLANCE)):
            if not self._record.open and not await self._left():
                break
            await asyncio.sleep(GLANCE)
        self._record.left = await self._left()

    async def _left(self) -> int:
        stats = await self._queue.stats()
        return stats.pending + stats.leased + stats.dead
