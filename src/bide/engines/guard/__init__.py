"""What stands before every engine: rules that refuse what the engine can't do, and hooks that are told of every call."""

from collections.abc import Mapping, Sequence, Sized

from bide.engines.base import MAX_BATCH, Capabilities, NewMessage, Ref
from bide.errors import BadOption, Unavailable, Unsupported

_MEANS: Mapping[str, str] = {
    "cancel": "cancel or reschedule messages",
    "lookup": "look messages up",
    "extend": "renew leases",
    "inspect": "list, count, requeue or purge messages",
    "pause": "pause topics",
    "gates": "keep locks or limits",
    "results": "keep results",
}


class Rules:
    def __init__(self, can: Capabilities, shown: str) -> None:
        self.closed: bool = False
        self._can = can
        self._shown = shown  # the engine, as it may be shown
        self.takes_all: bool = can.keys and can.idempotent and can.priority  # what a message may have

    def check(
        self,
        needs: str | None = None,
        batch: Sized = (),
        *,
        limit: int = 1,
        topics: Sized = (),
        connection: object | None = None,
    ) -> None:
        """`needs`: the capability without which there is no such verb."""
        if self.closed:
            raise Unavailable("The queue's engine is closed: make a new queue.")
        if needs is not None and not getattr(self._can, needs):
            raise Unsupported(f"{self._shown} can't {_MEANS[needs]}. `queue.capabilities` tells what an engine can do.")
        if connection is not None and not self._can.transactional:
            raise Unsupported(f"{self._shown} has no transactions that a message could join: leave connection= out.")
        if max(len(batch), limit) > MAX_BATCH or limit < 1:
            raise BadOption(f"A batch or limit is over {MAX_BATCH:,}, or under 1: ask for less at a time.")

        if len(topics) > self._can.max_topics:
            raise BadOption(
                f"{self._shown} takes {self._can.max_topics:,} topics in one claim, and these are {len(topics):,}: serve them "
                "by several workers, or use fewer topics."
            )

    def check_refs(self, needs: str, refs: Sequence[Ref], *, connection: object | None = None) -> None:
        self.check(needs, refs, connection=connection)
        if not self._can.keys and any(each.id is None for each in refs):
            raise Unsupported(f"{self._shown} has no keys: name the message by its id.")

    def check_messages(self, messages: Sequence[NewMessage]) -> None:
        for new in messages:
            if new.key is not None and not self._can.keys:
                raise Unsupported(f"{self._shown} has no keys: leave key= and if_exists= out.")
            if new.operation is not None and not self._can.idempotent:
                raise Unsupported(f"{self._shown} does not remember operations: leave operation= out.")
            if new.level != 1 and not self._can.priority:
                raise Unsupported(f"{self._shown} has no priorities: leave priority= out.")
