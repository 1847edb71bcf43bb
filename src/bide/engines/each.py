"""The error of a batch, and that of each of its items: parts of an engine fail for different reasons, items are refused."""

from collections.abc import Sequence
from typing import TypeVar

from bide.errors import BideError, OutcomeUnknown

E = TypeVar("E", bound=BideError)
OWN = ""  # in place of the error itself, which would keep itself and the frames of its callers alive


def keep_each(error: E, errors: Sequence[BideError | None]) -> E:
    """The same error, which knows those of its items."""
    if any(each is not error for each in errors):
        vars(error)["errors"] = [OWN if each is error else each for each in errors]
    return error


def error_of_each(error: BideError, count: int) -> Sequence[BideError | None]:
    """Of a batch of so many; None for one that was done, or that nothing is wrong with. One error of several items: they failed
    together.
    """
    errors: Sequence[BideError | str | None] | None = vars(error).get("errors")
    if errors is not None:
        return [error if isinstance(each, str) else each for each in errors]
    answers = (isinstance(error, OutcomeUnknown) and error.answers) or [None] * count
    return [error if answer is None else None for answer in answers]


def raise_first(errors: Sequence[BideError | None]) -> None:
    """Refuse a batch before any of it is sent, if it has items that can't be: `errors` has one of its own for each of these."""
    for error in errors:
        if error is not None:
            try:
                raise keep_each(error, errors)
            finally:
                del error, errors  # the traceback holds this frame
