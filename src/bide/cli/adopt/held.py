"""What a dry run tells of a batch that a run before was moving when it was stopped: whether the next run goes on with it."""

from typing import TYPE_CHECKING

from bide.adopt.adoption import destination_of
from bide.adopt.copies import SURE
from bide.adopt.source import is_for_another
from bide.core.formats import plural

if TYPE_CHECKING:
    from bide.adopt.source import EarlierRun
    from bide.queue import Queue

ASKS = "--doubtful send, forget or give-back"


def told(held: "EarlierRun", queue: "Queue") -> list[str]:
    """Lines for people. `queue`: where the next run moves it."""
    lines: list[str] = []
    if held.refused:
        lines.append(
            f"{plural(len(held.refused), 'message')} of a run that was stopped can't be read now: the next run stops. One "
            f"{held.refused[0].reason}, for example: {held.refused[0].entry}. Give the options of that run, or --doubtful "
            "give-back."
        )
    if held.found:
        lines.append(f"{plural(len(held.found), 'message')} of a run that was stopped: {_next(held, queue)}")
    return lines


def _next(held: "EarlierRun", queue: "Queue") -> str:
    """What the next run does with them."""
    if _elsewhere(held, queue):
        return (
            "it moved them to another queue, so the next run to this one stops. Run the command with the URL of that queue "
            "first; or, if it is gone, with --doubtful give-back."
        )
    if held.unsure:
        return f"the next run looks what became of them. If it can't find out, it stops: {ASKS} says what to do."
    if held.age > SURE and queue.capabilities.idempotent:
        ago = f"{held.age / 60:,.0f} minutes ago"
        return f"that was {ago}, so the next run stops. Look whether the new queue has them, and add {ASKS}."
    return "the next run begins with them."


def _elsewhere(held: "EarlierRun", queue: "Queue") -> bool:
    destination = destination_of(queue)
    return any(is_for_another(each.name, destination) for each in held.found)
