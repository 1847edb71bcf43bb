"""The answers to a batch that is done in several calls, and the one error that is true of all of it."""

from collections.abc import Sequence
from typing import Generic, TypeVar, cast

from bide.engines.base import NewMessage, as_one
from bide.errors import BideError, ConfirmTimeout, EngineError, OutcomeUnknown, PartlySent
from bide.ids import lane
from bide.types import Sent

R = TypeVar("R")


class Collected(Generic[R]):
    """The answers to a batch that is done in parts, one after the other, until one fails."""

    def __init__(self, count: int, new: Sequence[NewMessage] = ()) -> None:
        """`new`: the messages, if the batch is sent."""
        self._count = count
        self._new = new
        self._answers: list[R | None] = []
        self._done: list[R | None] = []  # the same, with what is not confirmed
        self._operations: list[str] = []
        self._short: ConfirmTimeout | None = None
        self._unconfirmed = 0

    @property
    def done(self) -> int:
        return len(self._answers)

    def answer(self, answers: Sequence[R]) -> None:
        """The next part was done."""
        self._operations += [""] * len(answers) if self._new else ()
        self._answers += answers
        self._done += answers

    def fall_short(self, error: ConfirmTimeout, count: int) -> None:
        """The next part was done too, but not confirmed, or not all of it."""
        answers = error.answers if len(error.answers) == count else [None] * count
        self._short = self._short or error
        self._unconfirmed += sum(each is None for each in answers)
        own = [new.operation or "" for new in self._new[self.done : self.done + count]]
        self._operations += error.operations if len(error.operations) == len(own) else own
        self._answers += answers
        self._done += error.done if len(error.done) == count else answers

    def result(self) -> list[R]:
        """The answers, when all was done. Raises ConfirmTimeout."""
        if self._short is not None:
            done = (
                "answered" if any(each is not None and not each for each in self._answers) else "done"
            )  # some changed nothing
            text = f"All {self._count:,} were {done}, but {self._unconfirmed:,} of them not confirmed: {self._short}"
            raise ConfirmTimeout(text, operations=self._operations, answers=self._answers, done=self._done) from self._short
        return cast("list[R]", self._answers)

    def stop(self, error: BideError, count: int) -> None:
        """The next part failed, of so many. Raises an error in place of its own, which would not be true of the parts that were
        done, or not tried. One that stays has an operation also for each message of the parts after it.
        """
        told = error if isinstance(error, OutcomeUnknown) else OutcomeUnknown("")
        named = [*self._operations, *told.operations]
        name = lane()  # so that the rest can be sent by the same means
        named += [new.operation or f"{name}#{i}" for i, new in enumerate(self._new[len(named) :])]
        answers = [*self._answers, *told.answers]
        answers += [None] * (self._count - len(answers))
        done = [*self._done, *(told.done or told.answers)]
        done += [None] * (self._count - len(done))
        left = self._count - self.done - count
        partly = any(each is not None for each in told.answers)  # it says that others were done, which are of its own part
        untried = f" The last {left:,} of {self._count:,} were not tried." if left and partly else ""
        if self._short is not None or (self._answers and not self._new):
            short = f", {self._unconfirmed:,} of them not confirmed" if self._short is not None else ""
            text = f"{self.done:,} of {self._count:,} were done{short}, then: {error}{untried}"
            raise OutcomeUnknown(text, operations=named, answers=answers, done=done) from error
        if self._new and self._answers:
            sent = cast("list[Sent]", self._answers)
            text = f"{len(sent):,} of {self._count:,} messages were accepted, then: {error}{untried}"
            raise PartlySent(text, sent, error) from error
        told.operations, told.answers, told.done = told.operations and named, told.answers and answers, told.done and done
        if untried:
            text = f"{error}{untried}"
            raise OutcomeUnknown(text, operations=told.operations, answers=told.answers, done=told.done) from error


class Assembled(Generic[R]):
    """The answers to a batch that is asked about in several calls, in any order."""

    def __init__(self, count: int, *, part: bool = False) -> None:
        """`part`: it is a part of a batch, whose error counts what was done."""
        self._part = part
        self._known: list[R | None] = [None] * count
        self._done: list[R | None] = [None] * count  # the same, with what is not confirmed
        self._left = set(range(count))  # not tried
        self._errors: list[BideError] = []

    def answer(self, asked: Sequence[int], answers: Sequence[R]) -> None:
        """What a call says of those that were `asked`."""
        self._left.difference_update(asked)
        for i, answer in zip(asked, answers, strict=True):
            self._known[i] = self._done[i] = answer

    def fail(self, asked: Sequence[int], error: BideError) -> None:
        """A call about these has failed. What it tells of others of its own counts."""
        self._left.difference_update(asked)
        self._errors.append(error)
        told = error if isinstance(error, OutcomeUnknown) else OutcomeUnknown("")
        for place, heard in ((self._known, told.answers), (self._done, told.done or told.answers)):
            for i, answer in zip(asked, heard or [None] * len(asked), strict=True):
                place[i] = answer

    def result(self) -> list[R]:
        """The answers. Raises one error, which is true of all of it, if a call has failed."""
        if self._errors:
            raise self._failure() from self._errors[0].__cause__
        return cast("list[R]", self._known)

    def _failure(self) -> BideError:
        count, first = len(self._done), self._errors[0]
        if count == len(self._errors) == 1:
            return first
        done = [each for each in self._done if each is not None]
        unconfirmed = len(done) - sum(each is not None for each in self._known)
        were = "answered" if any(not each for each in done) else "done"  # some changed nothing
        lost = [each for each in self._errors if not isinstance(each, ConfirmTimeout)]
        if not lost:
            text = f"All {count:,} were {were}, but {unconfirmed:,} of them not confirmed: {first}"
            answers = self._known if unconfirmed < count else ()
            return ConfirmTimeout(str(first) if self._part else text, answers=answers, done=self._done)
        whole, left = as_one(sorted(lost, key=lambda each: not isinstance(each, EngineError))), len(self._left)
        short = f", {unconfirmed:,} of them not confirmed" if unconfirmed else ""
        told = [f"{len(done):,} of {count:,} {'was' if len(done) == 1 else 'were'} {were}{short}"] if done else []
        told += [f"{left:,} {'was' if left == 1 else 'were'} not tried"] if left else []
        if self._part:
            told = ["Some of the batch were done"] if done and not isinstance(first, OutcomeUnknown) else []
        text = f"{' and '.join(told)}{': ' if len(done) == count else '. Of the others: '}{whole}" if told else str(whole)
        if done or isinstance(whole, OutcomeUnknown):
            return OutcomeUnknown(text, answers=self._known, done=self._done)
        return type(whole)(text) if told else whole
