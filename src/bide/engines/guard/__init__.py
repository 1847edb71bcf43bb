"""What stands before every engine: rules that refuse what the engine can't do, and hooks that are told of every call."""

from collections.abc import Mapping, Sequence, Sized

from bide.core.times import MAX_DELAY_MS, check_longest
from bide.engines.base import MAX_BATCH, Capabilities, Condition, Move, NewMessage, Ref, Seen
from bide.engines.each import raise_first
from bide.engines.guard.able import others_can
from bide.errors import BadOption, BadTime, BideError, Unavailable, Unsupported
from bide.types import State

_MEANS: Mapping[str, tuple[str, str]] = {
    "cancel": ("cancel", "cancel or reschedule messages"),
    "lookup": ("lookup", "look messages up"),
    "extend": ("extend", "renew leases"),
    "inspect": ("inspect", "list topics or count messages"),
    "timeline": ("inspect", "tell how many messages fall due at which time"),
    "pending": ("inspect", "list or purge messages that are not dead letters"),
    "dead": ("dead", "list, requeue or purge dead letters"),
    "pause": ("pause", "pause topics"),
    "gates": ("gates", "keep locks or limits"),
    "results": ("results", "keep results"),
}
"""What a verb is refused for: the capability that it needs, and what that means."""


class Rules:
    def __init__(self, can: Capabilities, shown: str) -> None:
        self.closed: bool = False
        self._can = can
        self._shown = shown  # the engine, as it may be shown
        able = (can.keys, can.idempotent, can.priority, can.past, can.max_delay >= MAX_DELAY_MS)
        self.takes_all: bool = all(able)  # what a message may have

    def check(
        self,
        needs: str | None = None,
        batch: Sized = (),
        *,
        limit: int = 1,
        topics: Sized = (),
        connection: object | None = None,
    ) -> None:
        """`needs`: the capability without which there is no such verb, or what it is called in _MEANS."""
        if self.closed:
            raise Unavailable("The queue's engine is closed: make a new queue.")
        if needs is not None:
            capability, means = _MEANS[needs]
            if not getattr(self._can, capability):
                raise Unsupported(f"{self._shown} can't {means}. {others_can(capability)}")
        if connection is not None and not self._can.transactional:
            raise self._lacks(
                "transactional",
                "has no transactions that a message could join. To send when your own database commits, give the queue "
                "that database as outbox=; without a transaction, leave connection= out.",
            )
        if max(len(batch), limit) > MAX_BATCH or limit < 1:
            raise BadOption(f"A batch or limit is over {MAX_BATCH:,}, or under 1: ask for less at a time.")

        if len(topics) > self._can.max_topics:
            raise BadOption(
                f"{self._shown} takes {self._can.max_topics:,} topics in one claim, and these are {len(topics):,}: serve them "
                "by several workers, or use fewer topics."
            )

    def check_state(self, state: State | None, batch: Sized = (), *, limit: int) -> None:
        """Of a verb for the messages of a topic in a state, or in all of them."""
        self.check("dead" if state == "dead" else "pending", batch, limit=limit)

    def check_refs(self, needs: str, refs: Sequence[Ref], *, connection: object | None = None) -> None:
        self.check(needs, refs, connection=connection)
        if not self._can.keys and any(each.id is None for each in refs):
            raise self._lacks("keys", "has no keys: name the message by its id.")

    def check_seen(self, refs: Sequence[Ref], seen: Sequence[Seen], most: int) -> None:
        named = {each.id for each in refs}
        if not len(named) == len(refs) == len(seen) or None in named:
            raise BadOption("With seen, name each message once, by its id, and tell of each what was seen.")
        if len(refs) > most:
            raise Unsupported(f"{self._shown} ends no more than {most:,} at once as a whole, and these are {len(refs):,}.")

    def check_moves(self, moves: Sequence[Move], condition: Condition | None, together: int) -> None:
        if condition is None and all(each.seen is None for each in moves):
            return
        named = {each.ref.id for each in moves}
        if len(named) != len(moves) or None in named:
            raise BadOption("With seen, or with a condition, name each message once, by its id.")
        if condition is not None and together == 1:
            raise Unsupported(f"{self._shown} does nothing together: leave condition= out.")
        if condition is not None and len(moves) > together:
            many = f"{len(moves):,}"
            raise Unsupported(f"{self._shown} moves no more than {together:,} at once on a condition, and these are {many}.")

    def check_messages(self, messages: Sequence[NewMessage]) -> None:
        """Raises for the first one that can't be sent; the error knows of the others."""
        raise_first([self._wrong_with(new) for new in messages])

    def _wrong_with(self, new: NewMessage) -> BideError | None:
        try:
            check_longest(new.delay, self._can.max_delay)
        except BadTime as error:
            return error
        if new.key is not None and not self._can.keys:
            return self._lacks("keys", "has no keys: leave key= and if_exists= out.")
        if new.operation is not None and not self._can.idempotent:
            return self._lacks("idempotent", "does not remember operations: leave operation= out.")
        if new.level != 1 and not self._can.priority:
            return self._lacks("priority", "has no priorities: leave priority= out.")
        if new.past is not None and not self._can.past:
            return self._lacks("past", "takes no attempts or dead letters of other queues: send the message as a new one.")
        return None

    def _lacks(self, capability: str, means: str) -> Unsupported:
        return Unsupported(f"{self._shown} {means} {others_can(capability)}")
