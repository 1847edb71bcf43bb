"""What a move that was stopped has on its way, given back to the queue it came from: the other queue is gone for good."""

import re
from typing import TYPE_CHECKING

from bide.adopt.queue.moved_message import Able
from bide.adopt.queue.moving import QueueSource
from bide.engines.base import MAX_BATCH

if TYPE_CHECKING:
    from bide.engines.sync import Engine


def give_all_back(engine: "Engine", shown: str) -> int:
    """Gives how many messages that were. Their copies, if there are any, are left where they are."""
    source = QueueSource(engine, shown, re.compile(".*"), Able(), None)
    names = [each.name for each in source.held().found]
    for first in range(0, len(names), MAX_BATCH):
        source.give_back(names[first : first + MAX_BATCH])
    source.close()
    return len(names)
