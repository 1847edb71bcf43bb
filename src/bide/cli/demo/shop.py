"""What happens in the shop: customers order, pay or forget to pay, and the shop closes when every message has ended."""

import asyncio
import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Unpack

from bide import AsyncQueue, Outgoing, Sent
from bide.cli.demo.board import Board, Order
from bide.cli.demo.plan import PACKING, PLEA, Customer, Plan
from bide.cli.demo.workers import Workers
from bide.prove import AsyncRecorded, History, record_engine
from bide.types import CancelResult, SendOptions

CLOSING = 5.0  # seconds after the last customer: until then every message has to end
GLANCE = 0.05
RETURN = 8.0  # seconds after packing began: until then another worker has to have worker 1's parcels


class Shop:
    """Make it before the queue is opened: its engine records deliveries and their ends, and the shop sends and changes."""

    def __init__(self, queue: AsyncQueue, folder: Path, plan: Plan, board: Board) -> None:
        history = History(folder / "shop.jsonl", "shop")
        record_engine(queue, history)
        self._queue = AsyncRecorded(queue, history)
        self._plan = plan
        self._board = board
        self._workers = Workers(queue, folder, board, history, plan.refused)
        self._packing = datetime.now(UTC) + timedelta(seconds=PACKING)

    async def day(self) -> None:
        async with asyncio.TaskGroup() as group:
            staff = [group.create_task(each) for each in self._workers.staff()]
            async with asyncio.TaskGroup() as customers:
                customers.create_task(self._carts())
                for customer in self._plan.customers:
                    customers.create_task(self._serve(customer))
                customers.create_task(self._late_ack())
            await self._last_messages()
            for each in staff:
                each.cancel()
        await self._queue.look()
        self._queue.history.close()

    async def _send(self, topic: str, order: int, **options: Unpack[SendOptions]) -> Sent:
        sent = await self._queue.send(topic, {"order": order}, **options)
        self._board.sent += 1
        return sent

    async def _cancel(self, topic: str, key: str) -> CancelResult:
        result = await self._queue.cancel(topic=topic, key=key)
        self._board.cancelled += bool(result)
        return result

    async def _carts(self) -> None:
        """Every visitor's cart is forgotten at its own time."""
        carts = [Outgoing({"cart": number}, delay=delay) for number, delay in enumerate(self._plan.carts)]
        self._board.sent += len(await self._queue.send_many("cart.forget", carts))
        self._board.say(f"{len(carts)} carts, each forgotten in its time", "faint")

    async def _serve(self, customer: Customer) -> None:
        await asyncio.sleep(customer.arrives)
        order, window, key = customer.order, customer.window, f"order:{customer.order}"
        deadline = await self._send("order.cancel", order, delay=window, key=key)
        await self._send("order.remind", order, delay=window / 2, key=key)
        self._board.orders[order] = Order(order, customer.item, deadline.due, window)
        self._board.say(f"{order} ordered, to be paid in {window} s")
        if customer.behaviour == "forgets":
            return
        await asyncio.sleep(customer.acts)
        if customer.behaviour == "asks for time":
            await self._more_time(order, key)
            await asyncio.sleep(PLEA / 2)
        await self._pay(order, key)

    async def _more_time(self, order: int, key: str) -> None:
        result = await self._queue.reschedule(topic="order.cancel", key=key, delay=PLEA)
        found = await self._queue.plain.get(topic="order.cancel", key=key)
        if found is not None:
            self._board.orders[order].due = found.due
        self._board.say(f"{order} asks for time: reschedule {result.name}", "odd")

    async def _pay(self, order: int, key: str) -> None:
        result = await self._cancel("order.cancel", key)
        await self._cancel("order.remind", key)
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
        """Wait until every message has ended, but not for ever."""
        for _ in range(round(CLOSING / GLANCE)):
            if not self._board.waiting:
                break
            await asyncio.sleep(GLANCE)
