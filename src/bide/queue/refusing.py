"""Refuses what a queue's engine can't take, before anything of it is sent."""

from collections.abc import Sequence

from bide.core.times import MAX_DELAY_MS, check_longest
from bide.engines.base import Capabilities, NewMessage
from bide.engines.guard import Rules
from bide.engines.guard.able import others_can
from bide.errors import Unsupported
from bide.queue.deliveries import DEPENDS
from bide.queue.setup import Setup


def takes_all(can: Capabilities) -> bool:
    """Whether there is nothing to refuse."""
    return Rules(can, "").takes_all and can.results and can.inspect


def check(setup: Setup, messages: Sequence[NewMessage]) -> None:
    """Raises Unsupported, or BadTime for a delay that is too long for the engine."""
    can, shown = setup.source.capabilities, setup.source.shown
    Rules(can, shown).check_messages(messages)
    if can.max_delay < MAX_DELAY_MS:
        now = setup.now_ms()
        for each in messages:
            if each.at is not None:
                check_longest(each.at - now, can.max_delay)
    if not (can.results and can.cancel) and any(DEPENDS in each.headers for each in messages):
        raise Unsupported(f"{shown} lets no message wait for others: leave depends_on= out. {others_can('results', 'cancel')}")
    for topic in {each.topic for each in messages}:
        if not can.results and topic in setup.tasks.keeps:
            raise Unsupported(f"{shown} keeps no results: leave out keep= of the task for {topic}. {others_can('results')}")
        if not can.inspect and topic in setup.tasks.rules.most:
            raise Unsupported(f"{shown} can't count messages: leave out most_pending= of {topic}. {others_can('inspect')}")
