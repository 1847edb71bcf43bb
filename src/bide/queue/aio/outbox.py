# unasync: ../sync/outbox.py
"""The outbox: sends that are committed with the caller's own work, and then handed to the queue's engine, at least once."""

import time
from collections.abc import Sequence

from bide.engines.aio import AsyncEngine
from bide.engines.base import NewMessage
from bide.engines.guard.hooks import Hooks
from bide.errors import ResultPending, ResultUnknown
from bide.queue import outbox
from bide.queue.aio.outbox_changes import AsyncOutboxChanges, AsyncWithdrawal, Cancel
from bide.queue.aio.outbox_messages import AsyncOutboxMessages, AsyncTurns
from bide.queue.aio.relay import AsyncRelay, AsyncRelays
from bide.queue.aio.results import AsyncOpenResults
from bide.queue.batching import CLOSING
from bide.queue.relay import Kept
from bide.queue.results import expected
from bide.queue.run.aio.limits import tend
from bide.queue.setup import Setup
from bide.types import Sent


class AsyncOutbox:
    """`store`: the engine of the caller's database. Any number of programs may hand its messages on."""

    def __init__(self, store: AsyncEngine, target: AsyncEngine, keeping: AsyncOpenResults, setup: Setup, shown: str) -> None:
        """`keeping`: the results that are kept by the queue's engine. `shown`: the store, as it may be shown."""
        self._setup = setup
        self._hooks = Hooks(setup.hooks, shown)
        self.store: AsyncEngine = store
        self._target = target
        self._keeping = keeping
        self._named = AsyncOpenResults(store)  # the ids that messages have since they were handed on
        self._bring = AsyncOutboxChanges(store, target, self._name).bring
        self.waiting: AsyncOutboxMessages = AsyncOutboxMessages(store, target, self._bring)
        self._turns = AsyncTurns(self.waiting, target)
        self.relays: AsyncRelays = AsyncRelays()

    def relay(self) -> AsyncRelay:
        """A new one, for one call."""
        return AsyncRelay(self.store, self._target, self._name, self._tend, self._turns, self.relays)

    def withdrawal(self, cancel: Cancel) -> AsyncWithdrawal:
        """For one call. `cancel`: in the queue."""
        return AsyncWithdrawal(self.store, self.waiting, self._bring, cancel, self._target.capabilities)

    async def put(self, messages: Sequence[NewMessage], *, connection: object) -> list[Sent]:
        await self.store.open()
        keeps = self._setup.tasks.keeps
        once = self._target.capabilities.idempotent
        with self._hooks.call("put", messages) as call:  # of what is sent: the store's own hooks would see what wraps it
            try:
                kept = await self.store.put(
                    [outbox.kept(new, keeps.get(new.topic), once=once) for new in messages], connection=connection
                )
                call.answer = sent = outbox.answers(messages, kept)
            finally:
                del call  # its error will hold this frame
        await self._named.expect(expected(sent, keeps), connection)
        return sent

    async def find(self, id: str, timeout: float | None) -> str:
        """The id that a message has since it was handed on. Raises NoResult."""
        await self.store.open()
        try:
            return (await self._named.wait(id, timeout, self._setup, id.removeprefix(outbox.PREFIX))).decode()
        except ResultPending:
            raise ResultPending(f"Message {id} is not done yet: it is in the outbox.") from None
        except ResultUnknown:
            raise ResultUnknown(
                f"Nothing is known of {id}: its transaction is not committed or was rolled back, its task has no keep=, or its "
                "time is over."
            ) from None

    async def _name(self, kept: Sequence[Kept], sent: Sequence[Sent], now: int) -> None:
        """Remember which ids they have now, of those whose results are kept. They leave the outbox after that."""
        if not self._target.capabilities.results:
            return
        pairs = [(claimed, each) for (claimed, _), each in zip(kept, sent, strict=True)]
        asked = [(claimed, each, keep) for claimed, each in pairs if (keep := outbox.keep_of(claimed)) is not None]
        if asked:
            keeps = {each.topic: keep for _, each, keep in asked}
            await self._keeping.expect(expected([each for _, each, _ in asked], keeps), None)
            await self.store.results.fulfil([outbox.handed_on_as(*each, now) for each in asked])

    async def _tend(self) -> bool:
        """Whether there is more to do."""
        return (await tend(self.store)).more

    def end_waits(self) -> None:
        """Whoever waits to be told an id is told that the queue is closed, and relays end."""
        self._named.end_waits()
        self.relays.close()

    async def close(self) -> None:
        await self._named.close(time.monotonic() + CLOSING)
        await self.store.close()
