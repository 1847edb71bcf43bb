"""Time travel for tests: move the queue's clock, and have what falls due on the way handled. Here: what became of it."""

from asyncio import CancelledError
from collections.abc import Iterable
from typing import NamedTuple

from bide.errors import Unsupported
from bide.queue.setup import Setup
from bide.queue.tasks.outcome import Bury, Retry, Snooze, decisive
from bide.raised import error_text, said


class Handled(NamedTuple):
    """What happened to a message in time travel.

    With a task, the outcome is "done", "retry", "snoozed", "waits" for a lock, a limit or another release of its task,
    "left out" by its schedule, "dead", "expired", "lost" if its lease was lost, or "ended" if the handler ended its delivery
    itself. `error` is what the handler raised. Without a task, it is "ready": the message waits for a receiver.
    """

    topic: str
    id: str
    outcome: str
    error: BaseException | None = None


def check_travel(setup: Setup) -> None:
    """Refuse an engine that can't tell what falls due when."""
    can = setup.source.capabilities
    if not (can.inspect and can.lookup):
        raise Unsupported(
            f"{setup.source.shown} can't list what is pending, which time travel needs: move the queue in your tests, "
            "`with queue.testing.in_memory():`."
        )


def raise_all(handled: Iterable[Handled]) -> None:
    """One error by itself, several as an ExceptionGroup. The same one in several attempts of a message counts once."""
    errors: list[BaseException] = []
    known: set[object] = set()
    for each in handled:
        error = each.error
        if error is None or isinstance(decisive(error), Bury | Retry | Snooze):
            continue
        place = each.id, type(error), said(error)
        if not known & {place, id(error)}:  # a batch has one error for all of its messages
            errors.append(_told(error, each))
        known |= {place, id(error)}
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise BaseExceptionGroup("handlers raised while time passed", errors)


def _told(error: BaseException, handled: Handled) -> BaseException:
    """The error, with a note of where it is from; what would end the test run or its loop as an error that says so."""
    if isinstance(error, SystemExit | GeneratorExit | CancelledError):
        told = RuntimeError(f"a handler raised {error_text(error)}")
        told.__cause__ = error
        error = told
    error.add_note(
        f"raised by the handler of message {handled.id} of {handled.topic}, which is {handled.outcome}; "
        "if the test expects it: advance(…, raise_errors=False)"
    )
    return error
