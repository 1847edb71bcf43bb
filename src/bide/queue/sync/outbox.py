# Generated from ../aio/outbox.py by tools/unasync.py; change that file instead.
"""The outbox: sends that are committed with the caller's own work, and then handed to the queue's engine, at least once."""

import time
from collections.abc import Sequence

from bide.engines.base import NewMessage
from bide.engines.guard.hooks import Hooks
from bide.engines.sync import Engine
from bide.errors import ResultPending, ResultUnknown
from bide.queue import outbox
from bide.queue.batching import CLOSING
from bide.queue.relay import Kept
from bide.queue.results import expected
from bide.queue.run.sync.limits import tend
from bide.queue.setup import Setup
from bide.queue.sync.outbox_changes import Cancel, OutboxChanges, Withdrawal
from bide.queue.sync.outbox_messages import OutboxMessages, Turns
from bide.queue.sync.relay import Relay, Relays
from bide.queue.sync.results import OpenResults
from bide.types import Sent


class Outbox:
    """`store`: the engine of the caller's database. Any number of programs may hand its messages on."""

    def __init__(self, store: Engine, target: Engine, keeping: OpenResults, setup: Setup, shown: str) -> None:
        """`keeping`: the results that are kept by the queue's engine. `shown`: the store, as it may be shown."""
        self._setup = setup
        self._hooks = Hooks(setup.hooks, shown)
        self.store: Engine = store
        self._target = target
        self._keeping = keeping
        self._named = OpenResults(store)  # the ids that messages have since they were handed on
        self._bring = OutboxChanges(store, target, self._name).bring
        self.waiting: OutboxMessages = OutboxMessages(store, target, self._bring)
        self._turns = Turns(self.waiting, target)
        self.relays: Relays = Relays()

    def relay(self) -> Relay:
        """A new one, for one call."""
        return Relay(self.store, self._target, self._name, self._tend, self._turns, self.relays)

    def withdrawal(self, cancel: Cancel) -> Withdrawal:
        """For one call. `cancel`: in the queue."""
        return Withdrawal(self.store, self.waiting, self._bring, cancel, self._target.capabilities)

    def put(self, messages: Sequence[NewMessage], *, connection: object) -> list[Sent]:
        self.store.open()
        keeps = self._setup.tasks.keeps
        once = self._target.capabilities.idempotent
        with self._hooks.call("put", messages) as call:  # of what is sent: the store's own hooks would see what wraps it
            try:
                kept = self.store.put(
                    [outbox.kept(new, keeps.get(new.topic), once=once) for new in messages], connection=connection
                )
                call.answer = sent = outbox.answers(messages, kept)
            finally:
                del call  # its error will hold this frame
        self._named.expect(expected(sent, keeps), connection)
        return sent

    def find(self, id: str, timeout: float | None) -> str:
        """The id that a message has since it was handed on. Raises NoResult."""
        self.store.open()
        try:
            return (self._named.wait(id, timeout, self._setup, id.removeprefix(outbox.PREFIX))).decode()
        except ResultPending:
            raise ResultPending(f"Message {id} is not done yet: it is in the outbox.") from None
        except ResultUnknown:
            raise ResultUnknown(
                f"Nothing is known of {id}: its transaction is not committed or was rolled back, its task has no keep=, or its "
                "time is over."
            ) from None

    def _name(self, kept: Sequence[Kept], sent: Sequence[Sent], now: int) -> None:
        """Remember which ids they have now, of those whose results are kept. They leave the outbox after that."""
        if not self._target.capabilities.results:
            return
        pairs = [(claimed, each) for (claimed, _), each in zip(kept, sent, strict=True)]
        asked = [(claimed, each, keep) for claimed, each in pairs if (keep := outbox.keep_of(claimed)) is not None]
        if asked:
            keeps = {each.topic: keep for _, each, keep in asked}
            self._keeping.expect(expected([each for _, each, _ in asked], keeps), None)
            self.store.results.fulfil([outbox.handed_on_as(*each, now) for each in asked])

    def _tend(self) -> bool:
        """Whether there is more to do."""
        return tend(self.store).more

    def end_waits(self) -> None:
        """Whoever waits to be told an id is told that the queue is closed, and relays end."""
        self._named.end_waits()
        self.relays.close()

    def close(self) -> None:
        self._named.close(time.monotonic() + CLOSING)
        self.store.close()
