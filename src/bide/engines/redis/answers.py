"""What the parts of a batch have answered, as one answer."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from bide.engines.base import as_one
from bide.engines.each import error_of_each, keep_each
from bide.errors import BideError, ConfirmTimeout, OutcomeUnknown

Told: TypeAlias = tuple[Sequence[int], Sequence[Any] | Exception]
"""Which of a batch a part was asked for, and its answers to them, or its error."""


def together(count: int, parts: Iterable[Told]) -> list[Any]:
    """The answers in the order of the batch. When a part fails and another was done: OutcomeUnknown, with all answers, or
    ConfirmTimeout if each part was done. The error knows that of each of the batch.
    """
    answers: list[Any] = [None] * count
    done: list[Any] = [None] * count  # also what is not confirmed
    failures: list[BideError] = []
    errors: list[BideError | None] = [None] * count
    some = False
    for indexes, told in parts:
        if isinstance(told, BideError):
            failures.append(told)
            for i, error in zip(indexes, error_of_each(told, len(indexes)), strict=True):
                errors[i] = error
        elif isinstance(told, Exception):
            raise told
        sure = (isinstance(told, OutcomeUnknown) and told.answers) if isinstance(told, Exception) else told
        if sure:
            some = some or not isinstance(told, Exception) or any(each is not None for each in sure)
            for i, answer in zip(indexes, sure, strict=True):
                answers[i] = done[i] = answer
        if isinstance(told, OutcomeUnknown):
            for i, answer in zip(indexes, told.done, strict=bool(told.done)):
                done[i] = answer
    if failures:
        raise keep_each(_failure(failures, answers, done, some=some), errors)
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
        told = kind(str(error), operations=left, answers=error.answers, done=error.done)
        raise keep_each(told, error_of_each(error, count)) from error.__cause__


def in_pieces(told: Iterable[Sequence[Told] | Exception]) -> Iterator[Told]:
    """What those have answered that were asked in pieces."""
    for each in told:
        if isinstance(each, Exception):
            raise each
        yield from each


def known(error: BideError, count: int) -> Sequence[Any]:
    """What became of each of a batch of so many that failed; None where that is not known."""
    return (isinstance(error, OutcomeUnknown) and (error.done or error.answers)) or [None] * count


def part_of(told: Sequence[Any] | BideError, indexes: Sequence[int]) -> Sequence[Any] | BideError:
    """The answers to some of a batch."""
    if not isinstance(told, Exception):
        return [told[i] for i in indexes]
    if not indexes:
        return []
    if not isinstance(told, OutcomeUnknown):
        return told
    answers, done = ([each[i] for i in indexes] if each else [] for each in (told.answers, told.done))
    kind = ConfirmTimeout if isinstance(told, ConfirmTimeout) else OutcomeUnknown
    return kind(str(told), answers=answers, done=done)


def _failure(failures: Sequence[BideError], answers: Sequence[Any], done: Sequence[Any], *, some: bool) -> BideError:
    """`some`: there are answers."""
    lost = [each for each in failures if not isinstance(each, ConfirmTimeout)]
    if not lost:
        return ConfirmTimeout(str(failures[0]), answers=answers if some else (), done=done)
    whole = as_one(lost)
    if len(lost) > 1:  # one of its own, which knows of the others
        whole = type(whole)(str(whole))
    if not some and len(lost) == len(failures):
        return whole
    if any(isinstance(each, OutcomeUnknown) and each.answers for each in lost):  # it says so
        return OutcomeUnknown(str(whole), answers=answers, done=done)
    rest = "were done" if len(lost) == len(failures) else "were done, though not all of them are confirmed"
    error = OutcomeUnknown(
        f"{whole} That is about one part of several: others of the batch {rest}.", answers=answers, done=done
    )
    error.__cause__ = whole
    return error
