"""What a move that was stopped has on its way, given back to the queue it came from: the other queue is gone for good."""

import re
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from bide.adopt.queue.moved_message import Able
from bide.adopt.queue.moving import QueueSource
from bide.adopt.queue.notes import batches_of, idle
from bide.adopt.queue.on_the_way import OtherMove
from bide.engines.base import MAX_BATCH

if TYPE_CHECKING:
    from bide.engines.sync import Engine

QUIET = 60.0  # seconds: a run that goes on takes messages more often


class GivenBack(NamedTuple):
    messages: int
    destinations: Collection[str]  # that may have copies: of them, or of what was given back or changed before


def give_all_back(engine: "Engine", shown: str) -> GivenBack:
    """Copies, if there are any, are left where they are. Raises OtherMove if a run may go on: it would send some after this."""
    batches, _ = batches_of(engine)
    if batches and (seconds := idle(engine, batches)) < QUIET:
        raise OtherMove(
            f"A `bide move` took messages {seconds:.0f} seconds ago, and may go on. End it, wait for a minute, and run this "
            "command again."
        )
    source = QueueSource(engine, shown, re.compile(".*"), Able(), None)
    held = source.held()
    names = [each.name for each in held.found]
    for first in range(0, len(names), MAX_BATCH):
        source.give_back(names[first : first + MAX_BATCH])
    source.settle()
    source.close()
    there = {each.destination for each in batches} if held.found or held.ended or held.known else set[str]()
    return GivenBack(len(names), there)
