"""The people who work in the shop. Each takes messages from the queue; worker 1 is killed."""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

from bide import AsyncDelivery, AsyncQueue
from bide.cli.demo.board import Board
from bide.engines.base import End, Settings
from bide.engines.registry import source
from bide.prove import History
from bide.prove.source import RecordedSource

WORK = 0.4  # seconds that worker 1 works before it is killed
PACK = 0.06  # seconds a parcel


class Workers:
    def __init__(self, queue: AsyncQueue, folder: Path, board: Board, history: History, refused: int) -> None:
        self._queue = queue
        self._folder = folder
        self._board = board
        self._history = history
        self._refused = refused  # the order whose receipt the mail server refuses twice
        self._taken = asyncio.Event()
        self._came_back = asyncio.Event()
        self._held: list[tuple[int, str, str]] = []  # by worker 1: order, id and token of each parcel
        self._missing: set[str] = set()  # of them, those that no other worker has yet

    def staff(self) -> list[Coroutine[Any, Any, None]]:
        return [
            self._listen(self._clerk, "order.cancel", "order.remind"),
            self._listen(self._cart_keeper, "cart.forget", limit=100),
            self._listen(self._mailer, "order.receipt"),
            self._worker_1(),
            self._worker_2(),
        ]

    async def _listen(self, work: Callable[[AsyncDelivery, int], Awaitable[None]], *topics: str, limit: int = 1) -> None:
        """An error in the work leaves the block of its delivery, which is then tried again later."""
        async for delivery in self._queue.listen(*topics, limit=limit):
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
        if order == self._refused and delivery.attempt <= 2:
            self._board.say(f"{order} receipt, attempt {delivery.attempt}: server busy", "odd")
            raise ConnectionError("451 try again later")
        if delivery.attempt > 1:
            self._board.say(f"{order} receipt, attempt {delivery.attempt}: mailed", "good")

    async def _worker_1(self) -> None:
        """Takes some parcels, and is killed while it packs the first one: it acks nothing, and gives nothing back."""
        command = [
            sys.executable,
            "-m",
            "bide.cli.demo.packer",
            f"sqlite:///{self._folder}/shop.db",
            f"{self._folder}/packer.jsonl",
        ]
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

    async def late_ack(self) -> None:
        """When another worker has all its parcels, an ack of worker 1 arrives: too late."""
        await self._came_back.wait()
        order, id, token = self._held[-1]
        engine = RecordedSource(source(Settings(url=f"sqlite:///{self._folder}/shop.db")), self._history).aio()
        await engine.open()
        [answer] = await engine.settle([End("order.pack", id, token, "done")])
        await engine.close()
        refused = answer == "lost"
        self._board.say(
            f"a late ack of worker 1 for {order}: {'refused' if refused else 'ACCEPTED'}", "odd" if refused else "bad"
        )
