# unasync: ../sync/opened.py
"""An engine that is open, with what belongs to it; and a cancel of many, in it and in its outbox."""

import time
from collections.abc import Sequence
from typing import Any

from bide.blocking import AsyncApart
from bide.core.times import duration_ms
from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, End, Ended, Move, NewMessage, Ref
from bide.errors import BadOption, BideError, ConfirmTimeout
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.aio.outbox import AsyncOutbox
from bide.queue.aio.parts import AsyncRooms, in_parts
from bide.queue.aio.receive import AsyncReceiver
from bide.queue.aio.results import AsyncDependents, AsyncOpenResults
from bide.queue.answers import Assembled, Collected
from bide.queue.batching import CLOSING, AsyncBatching
from bide.queue.deliveries import Internals
from bide.queue.heartbeat import Heartbeat
from bide.queue.outbox import PREFIX, concerns
from bide.queue.setup import Setup, takes_all
from bide.rounds import AsyncAside
from bide.types import CancelResult, Duration, RescheduleResult, Sent


class AsyncOpened:
    def __init__(self, engine: AsyncEngine, setup: Setup) -> None:
        self._setup = setup
        self.engine: AsyncEngine = engine
        self.takes_less: bool = not takes_all(engine.capabilities)  # what is sent has to be checked
        self.puts: AsyncBatching[NewMessage, Sent] = AsyncBatching(engine.put, engine.part_of)
        self.settles: AsyncBatching[End, Ended] = AsyncBatching(engine.settle, engine.part_of)
        self.cancels: AsyncBatching[Ref, CancelResult] = AsyncBatching(engine.cancel, engine.part_of)
        self.moves: AsyncBatching[Move, RescheduleResult] = AsyncBatching(
            engine.reschedule, lambda move: engine.part_of(move.ref)
        )
        self.rooms: AsyncRooms = AsyncRooms(engine, setup.tasks.rules.most)
        self.dependents: AsyncDependents = AsyncDependents(engine)
        self.keeping: AsyncOpenResults = AsyncOpenResults(engine)
        self.heartbeat: Heartbeat = Heartbeat(setup.source)
        self.aside: AsyncAside = AsyncAside()
        self.outbox: AsyncOutbox | None = (
            None if setup.outbox is None else AsyncOutbox(setup.outbox.aio(), engine, self.keeping, setup, setup.outbox.shown)
        )
        self.receiver: AsyncReceiver = AsyncReceiver(engine, setup.envelope, self.settles, self.heartbeat, setup.subscriptions)

    def delivery(self, internals: Internals) -> AsyncDelivery:
        """A delivery that was received in the other colour, to be ended here."""
        return AsyncDelivery(internals, self.engine, self.settles)

    async def result(self, id: str, timeout: Duration | None) -> Any:
        """What the task of a message returned. In an outbox it had another id, which its sender was told. Raises NoResult."""
        seconds = None if timeout is None else duration_ms(timeout, "timeout") / 1000
        began = time.monotonic()
        if id.startswith(PREFIX):
            if self.outbox is None:
                raise BadOption(f"{id} went through an outbox, and this queue has none: ask a queue with the same outbox=.")
            id = await self.outbox.find(id, seconds)
        left = None if seconds is None else max(0.0, seconds - (time.monotonic() - began))
        return self._setup.envelope.body(await self.keeping.wait(id, left, self._setup))

    async def close(self) -> None:
        """See what is under way through, and let go of the engine. One that was cut short goes on when it is called again."""
        self.keeping.end_waits()
        if self.outbox is not None:
            self.outbox.end_waits()
        try:
            await self.receiver.fresh.close()
            until = time.monotonic() + CLOSING
            if self.outbox is not None:
                await self.outbox.relays.ended(until)  # what they have claimed would stay leased
            for batching in (self.puts, self.settles, self.cancels, self.moves, self.keeping):
                await batching.close(until)
            await AsyncApart(self.heartbeat.close).done()
        except BaseException:
            self.heartbeat.close(0)  # nothing is renewed any more, and nobody waits for its thread
            raise
        finally:
            await self.aside.close()
            if self.outbox is not None:
                await self.outbox.close()
            await self.engine.close()


async def cancel_many(opened: AsyncOpened, refs: Sequence[Ref], connection: object | None) -> list[CancelResult]:
    """Those that may be in an outbox first. An error of one leaves no other untried, unless their store is away."""

    async def there(part: Sequence[Ref]) -> list[CancelResult]:
        return await _cancel_there(opened, part, connection)

    waiting = [i for i, each in enumerate(refs) if opened.outbox is not None and concerns(each)]
    if opened.outbox is None or not waiting:
        return await in_parts(there, refs, Collected(len(refs)))
    answers: Assembled[CancelResult] = Assembled(len(refs))
    told = await opened.outbox.withdrawal(there).cancel([refs[i] for i in waiting], connection)
    for i, each in zip(waiting, told, strict=False):
        if isinstance(each, BideError):
            answers.fail([i], each)
        else:
            answers.answer([i], [each])
    others = [i for i, each in enumerate(refs) if not concerns(each)]
    for begin in range(0, len(others), MAX_BATCH):
        part = others[begin : begin + MAX_BATCH]
        try:
            answers.answer(part, await there([refs[i] for i in part]))
        except BideError as error:
            answers.fail(part, error)
            if not isinstance(error, ConfirmTimeout):
                break
    return answers.result()


async def _cancel_there(opened: AsyncOpened, refs: Sequence[Ref], connection: object | None) -> list[CancelResult]:
    """In the queue, as many as it takes at once."""
    found = await opened.engine.cancel(refs, connection=connection)
    running = [i for i, answer in enumerate(found) if answer is CancelResult.RUNNING]
    if connection is not None or not running or not await opened.receiver.take_back():
        return found
    answers: Assembled[CancelResult] = Assembled(len(refs), part=True)
    answers.answer(range(len(refs)), found)
    try:
        answers.answer(running, await opened.engine.cancel([refs[i] for i in running]))
    except BideError as error:
        answers.fail(running, error)
    return answers.result()
