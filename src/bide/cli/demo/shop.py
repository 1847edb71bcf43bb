"""What happens in the shop: customers order, pay or forget to pay; the staff work on messages; one worker is killed."""

import asyncio
import contextlib
import json
import sys
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Unpack

from bide import AsyncDelivery, AsyncQueue, CancelResult, Outgoing, Sent
from bide.cli.demo.plan import PACKING, PLEA, Customer, DemoPlan
from bide.cli.demo.screen import Board, ShownOrder
from bide.engines.base import End, Settings
from bide.engines.registry import source
from bide.prove import AsyncRecorded, History, RecordedSource, record_engine
from bide.types import SendOptions

CLOSING = 5.0  # seconds after the last customer: until then every message has to end
GLANCE = 0.05
RETURN = 8.0  # seconds after packing began: until then worker 2 has to have worker 1's parcels
WORK = 0.4  # seconds that worker 1 works before it is killed
PACK = 0.06  # seconds a parcel


class Shop:
    """Its queue's engine records deliveries and their ends; the shop records what it sends, cancels and reschedules."""

    def __init__(self, folder: Path, plan: DemoPlan, board: Board) -> None:
        self._url = f"sqlite:///{folder}/shop.db"
        self._folder = folder
        self._plan = plan
        self._board = board
        self._history = History(folder / "shop.jsonl", "shop")
        queue = AsyncQueue(self._url)
        record_engine(queue, self._history)
        self._queue = AsyncRecorded(queue, self._history)
        self._packing = datetime.now(UTC) + timedelta(seconds=PACKING)
        self._taken = asyncio.Event()
        self._came_back = asyncio.Event()
        self._held: list[tuple[int, str, str]] = []  # by worker 1: order, id and token of each parcel
        self._missing: set[str] = set()  # ids of those parcels that worker 2 does not have yet

    async def day(self) -> None:
        async with self._queue.plain:
            async with asyncio.TaskGroup() as group:
                staff = (
                    self._listen(self._clerk, "order.cancel", "order.remind"),
                    self._listen(self._cart_keeper, "cart.forget", limit=100),
                    self._listen(self._mailer, "order.receipt"),
                    self._worker_1(),
                    self._worker_2(),
                )
                at_work = [group.create_task(each) for each in staff]
                async with asyncio.TaskGroup() as customers:
                    customers.create_task(self._carts())
                    for customer in self._plan.customers:
                        customers.create_task(self._serve(customer))
                    customers.create_task(self._late_ack())
                for _ in range(round(CLOSING / GLANCE)):
                    if not self._board.waiting:
                        break
                    await asyncio.sleep(GLANCE)
                for each in at_work:
                    each.cancel()
            await self._queue.look()
        self._history.close()

    # customers

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
        self._board.orders[order] = ShownOrder(order, customer.item, deadline.due, window)
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

    # staff

    async def _listen(self, work: Callable[[AsyncDelivery, int], Awaitable[None]], *topics: str, limit: int = 1) -> None:
        """An error in the work leaves the block of its delivery, which is then tried again later."""
        async for delivery in self._queue.plain.listen(*topics, limit=limit):
            if delivery.attempt == 1:
                self._board.lateness.append(round(delivery.lateness * 1000))
            async with delivery:
                await work(delivery, delivery.body["body"].get("order"))
                await delivery.ack()
                self._board.delivered += 1

    async def _clerk(self, delivery: AsyncDelivery, order: int) -> None:
        """Cancels orders that were not paid, and sends reminders before that."""
        if delivery.topic == "order.cancel":
            self._board.mark(order, "cancelled", "bad")
            self._board.say(f"{order} not paid: order is cancelled", "bad")
        else:
            self._board.say(f"{order} reminded to pay", "faint")

    async def _cart_keeper(self, delivery: AsyncDelivery, order: int) -> None:
        """Forgets carts: many small messages."""

    async def _mailer(self, delivery: AsyncDelivery, order: int) -> None:
        """Mails receipts. The mail server is busy twice."""
        if order == self._plan.refused and delivery.attempt <= 2:
            self._board.say(f"{order} receipt, attempt {delivery.attempt}: server busy", "odd")
            raise ConnectionError("451 try again later")
        if delivery.attempt > 1:
            self._board.say(f"{order} receipt, attempt {delivery.attempt}: mailed", "good")

    async def _worker_1(self) -> None:
        """Takes some parcels, and is killed while it packs the first one: it acks nothing, and gives nothing back."""
        command = [sys.executable, "-m", "bide.cli.demo.packer", self._url, f"{self._folder}/packer.jsonl"]
        with self._history.fault("kill a worker") as fault:
            process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
            try:
                assert process.stdout is not None
                self._held = json.loads(await process.stdout.readline() or "[]")
                self._missing = {id for _, id, _ in self._held}
                self._board.say(f"worker 1 takes parcels {' '.join(str(order) for order, _, _ in self._held) or '(none)'}")
                self._taken.set()
                await asyncio.sleep(WORK)
            finally:
                process.kill()
                fault.landed(f"ended with {await process.wait()}")
        self._board.say(f"worker 1 is killed with -9, holding {len(self._held)}", "bad")

    async def _worker_2(self) -> None:
        """Packs all parcels, also those of worker 1, as soon as their leases have ended."""
        await self._taken.wait()
        await self._listen(self._pack, "order.pack")

    async def _pack(self, delivery: AsyncDelivery, order: int) -> None:
        self._missing.discard(delivery.id)
        if self._held and not self._missing:
            self._came_back.set()
        await asyncio.sleep(PACK)
        self._board.mark(order, "paid, packed", "good")
        if delivery.attempt > 1:
            self._board.say(f"{order} packed by worker 2, attempt {delivery.attempt}", "good")
        else:
            self._board.say(f"{order} packed by worker 2", "faint")

    async def _late_ack(self) -> None:
        """When worker 2 has all parcels of worker 1, an ack of worker 1 arrives: too late."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._came_back.wait(), PACKING + RETURN)
        if not self._came_back.is_set():
            return
        order, id, token = self._held[-1]
        engine = RecordedSource(source(Settings(url=self._url)), self._history).aio()
        await engine.open()
        [answer] = await engine.settle([End("order.pack", id, token, "done")])
        await engine.close()
        if answer == "lost":
            self._board.say(f"a late ack of worker 1 for {order}: refused", "odd")
        else:
            self._board.say(f"a late ack of worker 1 for {order}: ACCEPTED", "bad")
