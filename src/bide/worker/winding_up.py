"""The end of what a worker has under way: waited for, told to stop, given back, and seen through to the engine."""

import asyncio
from collections.abc import Iterable

from bide.core.formats import plural
from bide.engines.base import End
from bide.logs import Log
from bide.queue.batching import LOOK
from bide.queue.run.call import failed
from bide.queue.run.message import Handling
from bide.queue.tasks.outcome import RELEASED, Outcome
from bide.worker.claiming import Claiming
from bide.worker.ending import Ending
from bide.worker.telling import tell
from bide.worker.under_way import UnderWay

_log = Log("bide.worker")
AT_ONCE = 100  # handlers that are told to stop before the loop goes round


async def wind_up(under_way: UnderWay, claiming: Claiming, ending: Ending) -> None:
    """Wait for the handlers, tell those that are left to stop, and see what has ended through to the engine."""
    under_way.batches.give_back()
    await _wait(under_way, ending)
    await _recover(claiming, ending)
    await _end_handlers(under_way, ending)
    unheard = await under_way.settling.drain(ending)
    if unheard:
        what = plural(unheard, "message")
        _log.error("The engine could not be told how %s ended: a message comes back when its lease ends.", what)
    for part in (under_way.steps["overdue"], under_way.entrance, under_way.leaving):
        await ending.see_through(part.emptied())
    under_way.drop()


async def _wait(under_way: UnderWay, ending: Ending) -> None:
    """For the handlers, and for less long for those that have ended and whose part of the engine is silent."""
    while left := _runners(each for each in under_way if not each.stuck and not (each.aside and ending.is_silence_over)):
        await ending.grace(left, LOOK)
        if not ending.left:
            return


async def _recover(claiming: Claiming, ending: Ending) -> None:
    """Give back what came with a claim whose answer was not waited for."""
    recovering = asyncio.get_running_loop().create_task(claiming.recover())
    await ending.wait([recovering])
    if not recovering.done():
        recovering.cancel()
    elif not recovering.cancelled() and (error := recovering.exception()) is not None:
        _log.warning("A claim was not answered: what it may hold comes back when its lease ends. %s", error)


async def _end_handlers(under_way: UnderWay, ending: Ending) -> None:
    """Tell the handlers to stop, some at a time: while they end, the engine takes back what others had."""
    left = _untold(under_way)
    for first in range(0, len(left), AT_ONCE):
        for each in _untold(left[first : first + AT_ONCE]):
            each.stop("stop")
        await ending.go_round()
    await ending.wait(_runners(left))
    for each in _untold(left):
        under_way.ended(each, given_up(each), by_itself=each.ended)


def _untold(handlings: Iterable[Handling]) -> list[Handling]:
    return [each for each in handlings if not each.told]


def _runners(handlings: Iterable[Handling]) -> list["asyncio.Task[None]"]:
    return [each.runner for each in handlings if each.runner is not None and not each.runner.done()]


def given_up(handling: Handling) -> Outcome | None:
    """What becomes of a message whose handler does not end, and can't be waited for any more."""
    if handling.doomed is not None:
        return handling.doomed
    if handling.why == "stop":
        return RELEASED
    became, error = failed(handling, asyncio.CancelledError())
    if error is not None:
        tell(handling.delivery, became, error)
    return became


def left_over(under_way: Iterable[Handling]) -> list[End]:
    """The ends of those whose handlers go on at the end of a grace: for another thread, when the loop does not go any more."""
    ends = []
    for each in under_way:
        if not each.told and not each.ending:
            each.why = each.why or "stop"
            each.expire()
            became = given_up(each)
            ends += [] if became is None else [each.delivery.end(*became)]
    return ends
