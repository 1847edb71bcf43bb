# Generated from ../aio/cancels.py by tools/unasync.py; change that file instead.
"""Cancels many messages, in the queue and, if it has one, in its outbox."""

from collections.abc import Sequence

from bide.engines.base import MAX_BATCH, Ref
from bide.errors import BideError, ConfirmTimeout
from bide.queue.collected import Assembled, Collected
from bide.queue.outbox import concerns
from bide.queue.sync.opened import Opened
from bide.queue.sync.parts import in_parts
from bide.types import CancelResult


def cancel_many(opened: Opened, refs: Sequence[Ref], connection: object | None) -> list[CancelResult]:
    """Those that may be in an outbox first. An error of one leaves no other untried, unless their store is away."""

    def there(part: Sequence[Ref]) -> list[CancelResult]:
        return _cancel_there(opened, part, connection)

    waiting = [i for i, each in enumerate(refs) if opened.outbox is not None and concerns(each)]
    if opened.outbox is None or not waiting:
        return in_parts(there, refs, Collected(len(refs)))
    answers: Assembled[CancelResult] = Assembled(len(refs))
    told = opened.outbox.withdrawal(there).cancel([refs[i] for i in waiting], connection)
    for i, each in zip(waiting, told, strict=False):
        if isinstance(each, BideError):
            answers.fail([i], each)
        else:
            answers.answer([i], [each])
    others = [i for i, each in enumerate(refs) if not concerns(each)]
    for begin in range(0, len(others), MAX_BATCH):
        part = others[begin : begin + MAX_BATCH]
        try:
            answers.answer(part, there([refs[i] for i in part]))
        except BideError as error:
            answers.fail(part, error)
            if not isinstance(error, ConfirmTimeout):
                break
    return answers.result()


def _cancel_there(opened: Opened, refs: Sequence[Ref], connection: object | None) -> list[CancelResult]:
    """In the queue, as many as it takes at once."""
    found = opened.engine.cancel(refs, connection=connection)
    running = [i for i, answer in enumerate(found) if answer is CancelResult.RUNNING]
    if connection is not None or not running or not opened.receiver.take_back():
        return found
    answers: Assembled[CancelResult] = Assembled(len(refs), part=True)
    answers.answer(range(len(refs)), found)
    try:
        answers.answer(running, opened.engine.cancel([refs[i] for i in running]))
    except BideError as error:
        answers.fail(running, error)
    return answers.result()
