"""The answers to a batch that is done in parts, and the one error that is true of all of it."""

from collections.abc import Sequence
from typing import Generic, TypeVar, cast

from bide.engines.base import NewMessage
from bide.errors import BideError, ConfirmTimeout, OutcomeUnknown, PartlySent
from bide.ids import lane
from bide.types import Sent

R = TypeVar("R")


class Collected(Generic[R]):
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


def of_part(error: BideError, asked: Sequence[int], answers: Sequence[object | None]) -> BideError:
    """What to raise for all of a batch, of which a call about those that were `asked` failed. `answers`: of the others."""
    if all(each is None for each in answers) and len(asked) == len(answers):
        return error
    known, done = list(answers), list(answers)
    told = error if isinstance(error, OutcomeUnknown) else OutcomeUnknown("")
    for place, heard in ((known, told.answers), (done, told.done or told.answers)):
        for i, answer in zip(asked, heard, strict=False):
            place[i] = answer
    some = any(each is not None for each in known)
    left = sum(each is None and i not in asked for i, each in enumerate(known))
    untried = [f"{left:,} {'was' if left == 1 else 'were'} not tried"] if left else []
    if not some and not isinstance(error, OutcomeUnknown):  # nothing was done at all
        return type(error)(f"{error} {untried[0]}.") if untried else error
    if isinstance(error, ConfirmTimeout) and not left:
        return ConfirmTimeout(str(error), answers=known if some else (), done=done)
    others = ["others of the batch were done"] if some and not told.answers else []
    rest = " and ".join([*others, *untried])
    return OutcomeUnknown(f"{error} {rest[:1].upper()}{rest[1:]}." if rest else str(error), answers=known, done=done)
