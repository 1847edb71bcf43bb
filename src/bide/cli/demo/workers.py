"""The people who work in the shop: each takes messages from the queue, and one does not come back in time."""

import asyncio

from bide import AsyncDelivery, AsyncQueue, LeaseLost
from bide.cli.demo.board import Board

LEASE = "1.5s"  # of the worker that stops
HANDS = 4  # parcels that it takes at once
WORK = 0.4  # seconds that it works before it stops
PACK = 0.06  # seconds a parcel


class Workers:
    def __init__(self, queue: AsyncQueue, board: Board, refused: int) -> None:
        self._queue = queue
        self._board = board
        self._record = board.record
        self._refused = refused
        self._took = asyncio.Event()
        self._came_back = asyncio.Event()
        self._held: list[AsyncDelivery] = []

    async def clerk(self) -> None:
        """Cancels what was not paid, and reminds who has not paid yet."""
        async for delivery in self._queue.listen("order.cancel", "order.remind"):
            async with delivery:
                self._record.handed(delivery, "clerk")
                number = delivery.body["order"]
                if delivery.topic == "order.cancel":
                    self._board.mark(number, "cancelled", "bad")
                    self._board.say(f"{number} not paid: order is cancelled", "bad")
                else:
                    self._board.say(f"{number} reminded to pay", "faint")
                await delivery.ack()
                self._record.ack(delivery, "clerk")

    async def cart_keeper(self) -> None:
        """Forgets carts: many small messages."""
        async for delivery in self._queue.listen("cart.forget", limit=100):
            async with delivery:
                self._record.handed(delivery, "cart keeper")
                await delivery.ack()
                self._record.ack(delivery, "cart keeper")

    async def mailer(self) -> None:
        """Mails receipts. The mail server is busy twice; leaving the block by an exception tries again later."""
        async for delivery in self._queue.listen("order.receipt"):
            async with delivery:
                self._record.handed(delivery, "mailer")
                number = delivery.body["order"]
                if number == self._refused and delivery.attempt <= 2:
                    self._record.failed.append(delivery.id)
                    self._board.say(f"{number} receipt, attempt {delivery.attempt}: server busy", "odd")
                    raise ConnectionError("451 try again later")
                await delivery.ack()
                self._record.ack(delivery, "mailer")
                if delivery.attempt > 1:
                    self._board.say(f"{number} receipt, attempt {delivery.attempt}: mailed", "good")

    async def worker_1(self) -> None:
        """Takes some parcels, and is stopped before it is done with the first."""
        packing = asyncio.create_task(self._pack_for_ever())
        await self._took.wait()
        await asyncio.sleep(WORK)
        packing.cancel()  # as if its machine were gone: nothing is acked, and nothing given back
        self._record.stop(self._held, "worker 1")
        self._board.say(f"worker 1 stops dead, holding {len(self._held)}", "bad")

    async def _pack_for_ever(self) -> None:
        self._held = await self._queue.receive("order.pack", limit=HANDS, wait="12s", lease=LEASE)
        for delivery in self._held:
            self._record.handed(delivery, "worker 1")
        self._board.say(f"worker 1 takes parcels {_numbers(self._held)}")
        self._took.set()
        await asyncio.Event().wait()

    async def worker_2(self) -> None:
        """Packs what is there, also what worker 1 did not finish, as soon as its lease has ended."""
        await self._took.wait()
        async for delivery in self._queue.listen("order.pack"):
            async with delivery:
                self._record.handed(delivery, "worker 2")
                if self._record.came_back:
                    self._came_back.set()
                number = delivery.body["order"]
                await asyncio.sleep(PACK)
                await delivery.ack()
                self._record.ack(delivery, "worker 2")
                self._board.mark(number, "paid, packed", "good")
                if delivery.attempt > 1:
                    self._board.say(f"{number} packed by worker 2, attempt {delivery.attempt}", "good")
                else:
                    self._board.say(f"{number} packed by worker 2", "faint")

    async def worker_1_comes_back(self) -> None:
        """When all its parcels are in other hands it acks the one that is being packed right then: too late."""
        await self._came_back.wait()
        delivery = self._held[-1]
        number = delivery.body["order"]
        try:
            await delivery.ack()
        except LeaseLost:
            self._record.stale_refused += 1
            self._board.say(f"worker 1 is back, acks {number}: refused", "odd")
        else:
            self._record.stale_accepted += 1
            self._board.say(f"worker 1 is back, acks {number}: ACCEPTED", "bad")


def _numbers(deliveries: list[AsyncDelivery]) -> str:
    return " ".join(str(delivery.body["order"]) for delivery in deliveries) or "(none)"
