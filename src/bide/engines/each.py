"""The error of a batch, and that of each of its items: parts of an engine fail for different reasons, items are refused."""

from collections.abc import Sequence
from typing import TypeVar

from bide.errors import BideError, OutcomeUnknown

E = TypeVar("E", bound=BideError)


def keep_each(error: E, errors: Sequence[BideError | None]) -> E:
    """The same error, which knows those of its items."""
    if any(each is not error for each in errors):
        vars(error)["errors"] = errors
    return error


def error_of_each(error: BideError, count: int) -> Sequence[BideError | None]:
    """Of a batch of so many; None for one that was done, or that nothing is wrong with. One error of several items: they failed
    together.
    """
    errors: Sequence[BideError | None] | None = vars(error).get("errors")
    if errors is None:
        answers = (isinstance(error, OutcomeUnknown) and error.answers) or [None] * count
        errors = [error if answer is None else None for answer in answers]
    return errors


def raise_first(errors: Sequence[BideError | None]) -> None:
    """Refuse a batch before any of it is sent, if it has items that can't be: `errors` has one of its own for each of these."""
    for error in errors:
        if error is not None:
            raise keep_each(error, errors)
