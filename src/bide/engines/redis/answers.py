"""What the parts of a batch have answered, as one answer."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from bide.errors import BideError, ConfirmTimeout, OutcomeUnknown

Told: TypeAlias = tuple[Sequence[int], Sequence[Any] | Exception]
"""Which of a batch a part was asked for, and its answers to them, or its error."""


def together(count: int, parts: Iterable[Told]) -> list[Any]:
    """The answers in the order of the batch. When a part fails and another was done: OutcomeUnknown, with all answers."""
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
    """The same of what was sent. An error has the operations of all, and says whether all of it was done."""
    try:
        return together(count, parts)
    except OutcomeUnknown as error:
        done = all(isinstance(told, ConfirmTimeout) for _, told in parts if isinstance(told, Exception))
        kind = ConfirmTimeout if done else OutcomeUnknown
        raise kind(str(error), operations=operations, answers=error.answers) from None


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
    confirmed = [not isinstance(each, ConfirmTimeout) for each in failures]  # those that may not have been done
    if not some and (all(confirmed) or not any(confirmed)):
        return first
    if isinstance(first, OutcomeUnknown) and first.answers:  # it says so
        return OutcomeUnknown(str(first), answers=answers)
    rest = "were done" if some else "may not have been done"
    error = OutcomeUnknown(f"{first} This was one part of several, and others of the batch {rest}.", answers=answers)
    error.__cause__ = first
    return error
