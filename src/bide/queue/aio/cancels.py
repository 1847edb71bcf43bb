# unasync: ../sync/cancels.py
"""Cancels many messages, in the queue and, if it has one, in its outbox."""

from collections.abc import Sequence

from bide.engines.base import MAX_BATCH, Ref
from bide.errors import BideError, ConfirmTimeout
from bide.queue.aio.opened import AsyncOpened
from bide.queue.aio.parts import in_parts
from bide.queue.collected import Assembled, Collected
from bide.queue.outbox import concerns
from bide.types import CancelResult


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
