"""What the parts of a batch have answered, as one answer."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from bide.errors import BideError, ConfirmTimeout, OutcomeUnknown

Told: TypeAlias = tuple[Sequence[int], Sequence[Any] | Exception]
"""Which of a batch a part was asked for, and its answers to them, or its error."""


def together(count: int, parts: Iterable[Told]) -> list[Any]:
    """The answers in the order of the batch. When a part fails and another was done: OutcomeUnknown, with all answers, or
    ConfirmTimeout if each part was done.
    """
    answers: list[Any] = [None] * count
    failures: list[BideError] = []
    some = False
    for indexes, told in parts:
        if isinstance(told, BideError):
            failures.append(told)
        elif isinstance(told, Exception):
            raise told
        known = (isinstance(told, OutcomeUnknown) and told.answers) if isinstance(told, Exception) else told
        if known:
            some = True
            for i, answer in zip(indexes, known, strict=True):
                answers[i] = answer
    if failures:
        raise _failure(failures, answers, some=some)
    return answers


def sent_together(count: int, parts: Sequence[Told], operations: Sequence[str]) -> list[Any]:
    """The same of what was sent. An error has the operations of all that may be sent again."""
    try:
        return together(count, parts)
    except OutcomeUnknown as error:
        kind = ConfirmTimeout if isinstance(error, ConfirmTimeout) else OutcomeUnknown
        left = operations
        if error.answers:
            left = [name if answer is None else "" for name, answer in zip(operations, error.answers, strict=True)]
        raise kind(str(error), operations=left, answers=error.answers) from None


def in_pieces(told: Iterable[Sequence[Told] | Exception]) -> Iterator[Told]:
    """What those have answered that were asked in pieces."""
    for each in told:
        if isinstance(each, Exception):
            raise each
        yield from each


def _failure(failures: Sequence[BideError], answers: Sequence[Any], *, some: bool) -> BideError:
    """`some`: there are answers."""
    unknown = [each for each in failures if isinstance(each, OutcomeUnknown)]
    first = (unknown or failures)[0]
    done = [isinstance(each, ConfirmTimeout) for each in failures]
    if not some and (all(done) or not any(done)):
        return first
    if all(done):
        return ConfirmTimeout(str(first), answers=answers)
    if isinstance(first, OutcomeUnknown) and first.answers:  # it says so
        return OutcomeUnknown(str(first), answers=answers)
    rest = "were done" if some else "may not have been done"
    error = OutcomeUnknown(f"{first} This was one part of several, and others of the batch {rest}.", answers=answers)
    error.__cause__ = first
    return error
