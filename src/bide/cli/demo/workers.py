"""The people who work in the shop: each takes messages from the queue, and one does not come back in time."""

import asyncio
import json
import sys
from typing import NamedTuple

from bide import AsyncQueue
from bide.cli.demo.board import Board
from bide.cli.demo.record import Handing
from bide.engines.base import End

WORK = 0.4  # seconds that worker 1 works before it is killed
PACK = 0.06  # seconds a parcel


class Parcel(NamedTuple):
    """What worker 1 said that it took."""

    id: str
    token: str
    attempt: int
    due: int
    at: int
    order: int


class Workers:
    def __init__(self, queue: AsyncQueue, url: str, board: Board, refused: int) -> None:
        self._queue = queue
        self._url = url
        self._board = board
        self._record = board.record
        self._refused = refused
        self._took = asyncio.Event()
        self._came_back = asyncio.Event()
        self._held: list[Parcel] = []

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
        """Takes some parcels, and is killed before it is done with the first: nothing is acked, and nothing given back."""
        packer = [sys.executable, "-m", "bide.cli.demo.packer", self._url]
        process = await asyncio.create_subprocess_exec(*packer, stdout=asyncio.subprocess.PIPE)
        try:
            assert process.stdout is not None
            self._held = [Parcel(**each) for each in json.loads(await process.stdout.readline() or "[]")]
            for each in self._held:
                self._record.handings.append(Handing(each.id, "worker 1", each.attempt, each.due, each.at))
            self._board.say(f"worker 1 takes parcels {' '.join(str(each.order) for each in self._held) or '(none)'}")
            self._took.set()
            await asyncio.sleep(WORK)
        finally:
            process.kill()
            await process.wait()
        self._record.stop([each.id for each in self._held], "worker 1")
        self._board.say(f"worker 1 is killed with -9, holding {len(self._held)}", "bad")

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

    async def late_ack(self) -> None:
        """When all its parcels are in other hands, an ack of worker 1 arrives for the one that is being packed: too late."""
        await self._came_back.wait()
        parcel = self._held[-1]
        engine = await self._queue._engine()
        [answer] = await engine.settle([End("order.pack", parcel.id, parcel.token, "done")])
        if answer == "lost":
            self._record.stale_refused += 1
            self._board.say(f"a late ack of worker 1 for {parcel.order}: refused", "odd")
        else:
            self._record.stale_accepted += 1
            self._board.say(f"a late ack of worker 1 for {parcel.order}: ACCEPTED", "bad")
