"""A message under way, and a batch of them: to those who call handlers both are as one."""

import asyncio
import time
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any, Literal, TypeAlias

from bide.core.formats import plural
from bide.core.options import MAX_ATTEMPTS
from bide.engines.base import Claimed, End
from bide.engines.lots import Lot, Noted, done
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.deliveries import ATTEMPTS, UNREAD, Together, internals
from bide.queue.leases import Places
from bide.queue.sync.delivery import Delivery
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.items import called_alone
from bide.queue.tasks.outcome import Outcome, failures

Why: TypeAlias = Literal["lost", "timeout", "stop", "place"]


class Taken:
    """What the messages of one claim have in common. A worker's makes what a message is known by when somebody asks; of others,
    as in time travel, all of that is there from the start (`Handling.of`), and nobody asks.
    """

    at_work: float | None = None  # since when, by time.monotonic(), if somebody listens to events
    lot: Lot | None = None  # what was claimed, where its engine gives that
    now: int = 0  # the engine's time when it was handed out
    slot: int = 0  # where the claim log has the claim
    waits: bool = False  # no handler has begun of what was claimed ahead
    mean: float = 0.0  # seconds of work of each handler that was called as one of many, one after the other

    def __init__(self, in_sync: Callable[[Any], Delivery]) -> None:
        self.in_sync: Callable[[Any], Delivery] = in_sync

    def claimed(self, place: int) -> Claimed:
        raise NotImplementedError("Its messages are there from the start.")

    def delivery(self, handling: "Handling") -> AsyncDelivery:
        raise NotImplementedError("Its deliveries are there from the start.")

    def unkept(self, delivery: AsyncDelivery) -> Callable[[], Any]:
        """What stops the renewals of its lease."""
        return _nothing


class Handling:
    """One message, from its claim until its end is decided.

    For most, what is written here first stays as it is, and no delivery is made: so it takes no time to set it.
    """

    why: Why | None = None  # it was told to stop
    told: bool = False  # its end has been decided
    stuck: bool = False  # it goes on long after its timeout
    runner: "asyncio.Task[None] | None" = None
    aside: bool = False  # it waits for the engine without a place
    alarm: Callable[[], object] | None = None  # stops what watches its timeout
    deadline: float | None = None  # when that is over, by time.monotonic()
    over: float | None = None  # when its handler came to an end, if that ran in a thread
    doomed: Outcome | None = None  # its last attempt killed its process: it is buried, and never released
    places: Places | None = None  # in the gates of its task
    batch: "Batch | None" = None  # that it is handled in
    decided: tuple[Outcome | None, BaseException | None] | None = None  # what becomes of it, where subscribers were told
    expired: bool = False  # it is told that it should stop
    known: Claimed | None = None  # what was claimed, once somebody has asked for that
    at_work: float | None = None  # since when, by time.monotonic(), if somebody wants to know of each
    seconds: float | None = None  # of work, once its handler has ended; None of one that was called as one of many
    end: End | None = None  # what the engine is to be told; None until then, and where its lot tells that it is done
    log_fields: dict[str, str] | None = None  # what subscribers want to be said in log lines about it
    body: Any = UNREAD
    made: AsyncDelivery | None = None  # its delivery, once somebody has asked for that
    _sync_delivery: Delivery | None = None

    def __init__(self, taken: Taken, place: int, task: Definition, topic: str, given: dict[str, Any] | None) -> None:
        """`given`: what its handler is called with, if that was read, in place of a body that was not."""
        self.taken: Taken = taken
        self.place: int = place
        self.task: Definition = task
        self.topic: str = topic
        self.given: dict[str, Any] | None = given

    @classmethod
    def of(cls, delivery: AsyncDelivery, task: Definition, taken: Taken, given: dict[str, Any] | None = None) -> "Handling":
        """Of a delivery that is there."""
        inside = internals(delivery)
        found = cls(taken, 0, task, delivery.topic, given)
        found.known, found.body, found.made = inside.claimed, inside.body, delivery
        inside.most = found.most
        return found

    @property
    def most(self) -> int:
        """How many attempts it has: as many as its task says, where its sender did not, as in another language."""
        claimed = self.claimed
        usual = claimed.max_attempts == MAX_ATTEMPTS and ATTEMPTS not in claimed.headers
        return self.task.max_attempts if usual else claimed.max_attempts

    @property
    def claimed(self) -> Claimed:
        """Any thread may ask."""
        if self.known is None:
            self.__dict__.setdefault("known", self.taken.claimed(self.place))
        assert self.known is not None
        return self.known

    @property
    def now(self) -> int:
        """The engine's time when it was handed out."""
        return self.taken.now if self.made is None else internals(self.made).now

    @property
    def delivery(self) -> AsyncDelivery:
        """Any thread may ask."""
        if self.made is None:
            inside = internals(self.__dict__.setdefault("made", self.taken.delivery(self)))
            if self.told:  # what was said before it could be told; from now on it is told, too
                inside.ended = True
            if self.expired:
                inside.expired = True
            if self.deadline is not None:
                inside.deadline = self.deadline
            if self.at_work is not None:
                inside.at_work = self.at_work
        assert self.made is not None
        return self.made

    def __str__(self) -> str:
        return name(self.delivery)

    def arguments(self) -> dict[str, Any]:
        """What the handler is called with. Raises Unread."""
        given = self.given
        return self.task.arguments.of_message(self.body) if given is None else given

    def read(self) -> None:
        """Keep them. Raises Unread."""
        self.given = self.arguments()

    @property
    def ended(self) -> bool:
        """Whether the handler has ended the delivery by itself."""
        return self.made is not None and internals(self.made).ended

    @property
    def ending(self) -> bool:
        """Whether it has done so, or is about to and waits for the answer."""
        return self.made is not None and (internals(self.made).ending or internals(self.made).ended)

    def each(self, error: BaseException | None) -> Sequence[tuple["Handling", BaseException | None]]:
        """The messages that the handler was called for, and what it says of each of them. `error`: what it raised."""
        return [(self, error)]

    def stop(self, why: Why) -> None:
        """Tell the handler to stop: an async one is cancelled, a sync one can see it in current().expired."""
        first = self.first_told(why)
        self.expire()
        if self.batch is not None:
            self.batch.one_stops(why, first=first)
        elif self.runner is not None and (self.task.is_async or why == "stop"):
            self.runner.cancel()

    def first_told(self, why: Why) -> bool:
        """Keep why it was told to stop; whether it was not told before."""
        first = self.why is None
        if first:
            self.why = why
        return first

    def begin_by(self, deadline: float) -> None:
        """Its handler is called, which has so long."""
        self.deadline = deadline
        if self.made is not None:
            internals(self.made).deadline = deadline

    def begins_work(self) -> None:
        """Its handler is called, and somebody wants to know how long it takes."""
        self.at_work = time.monotonic()
        if self.made is not None:
            internals(self.made).at_work = self.at_work

    def ends_work(self, began: float) -> None:
        """Its handler has ended. `began`: about when it was called, by time.monotonic()."""
        self.seconds = time.monotonic() - (began if self.at_work is None else self.at_work)

    @property
    def worked(self) -> float:
        """Seconds of work; 0 where that was not noted."""
        return self.seconds or 0.0

    def was_late(self) -> None:
        """Its handler has returned after its timeout, and was not told to stop."""
        self.first_told("timeout")
        self.expire()

    def silence(self) -> None:
        """Its handler has come to an end: what comes after it has no timeout, and the alarm names the handling."""
        if self.alarm is not None:
            self.alarm()
            self.alarm = None

    def returned(self) -> bool:
        """Its handler has returned. Whether there is nothing else to see to, and its end is decided."""
        if self.made is not None or self.why is not None or not self.task.plain:
            return False
        self.told = True
        self.runner = None
        return True

    def done(self) -> End:
        return done(self.claimed) if self.taken.at_work is None else internals(self.delivery).end("done")

    def noted(self) -> Noted:
        """Of one without a delivery."""
        return Noted(self.claimed, self.taken.now, self.taken.mean if self.seconds is None else self.seconds)

    def stick(self) -> None:
        self.stuck = True

    def expire(self) -> None:
        self.expired = True
        if self.made is not None:
            internals(self.made).expired = True

    def present(self) -> Any:
        """The delivery in the colour of the handler. Once the handler has ended it, its lease is not renewed any more: in the
        handler's own transaction the end may be long before the commit, and holds the message until then.
        """
        delivery = self.delivery
        if not self.task.is_async and self._sync_delivery is None:
            self._sync_delivery = self.taken.in_sync(delivery)
        internals(delivery).on_end = self.taken.unkept(delivery)
        return self._sync_delivery or delivery


class Batch(Handling):
    def __init__(self, members: Sequence[Handling]) -> None:
        first = members[0]
        super().__init__(first.taken, first.place, first.task.telling(self._answered), first.topic, None)
        self.made: AsyncDelivery | None = first.delivery
        self.members: Sequence[Handling] = members
        self._items = [item for each in members for item in (each.given or {}).values()]
        self.failed: dict[int, BaseException] = {}  # what the handler says of single messages, by their places
        self._deliveries: Together[Any] | None = None
        self._going = len(members)  # that are to go on
        self._told_to_stop: set[Why] = set()
        for each in members:
            each.batch = self

    def __str__(self) -> str:
        if len(self.members) == 1:
            return super().__str__()
        return f"A batch of {plural(len(self.members), 'message')} of {self.delivery.topic}"

    def arguments(self) -> dict[str, Any]:
        [name] = self.task.arguments.named
        return {name: list(self._items)}

    def each(self, error: BaseException | None) -> Sequence[tuple[Handling, BaseException | None]]:
        return [(each, self.failed.get(place) if error is None else error) for place, each in enumerate(self.members)]

    def _answered(self, answer: Any) -> None:
        """A generator goes on here, so where its handler runs: not in the event loop, if that is sync."""
        self.failed = failures(answer, self._items, self.task.name)

    def stop(self, why: Why) -> None:
        """Tell the handler to stop, for all of its messages."""
        for each in self.members:
            each.why = each.why or why
        self.expire()
        self._stop(why)

    def begin_by(self, deadline: float) -> None:
        super().begin_by(deadline)
        for each in self.members:
            each.begin_by(deadline)

    def begins_work(self) -> None:
        for each in self.members:
            each.begins_work()

    def ends_work(self, began: float) -> None:
        for each in self.members:
            each.ends_work(began)

    def was_late(self) -> None:
        super().was_late()
        for each in self.members:
            each.first_told("timeout")

    def one_stops(self, why: Why, *, first: bool) -> None:
        """A message of it is told to stop. Others go on, so its handler does, until it would go on for none."""
        self._going -= first
        if why == "stop" or not self._going:
            self._stop(why)

    def _stop(self, why: Why) -> None:
        self.first_told(why)
        if self.runner is not None and why not in self._told_to_stop and (self.task.is_async or why == "stop"):
            self._told_to_stop.add(why)
            self.runner.cancel()

    def forget_stop(self, runner: "asyncio.Task[None] | None") -> None:
        """It has ended, and what comes after it was not told to stop."""
        for _ in self._told_to_stop:
            if runner is not None:
                runner.uncancel()

    def stick(self) -> None:
        super().stick()
        for each in self.members:
            each.stick()

    def expire(self) -> None:
        for each in self.members:
            each.expire()

    def present(self) -> Any:
        if self._deliveries is None:
            self._deliveries = Together(map(methodcaller("present"), self.members))
        return self._deliveries


def batches_of(members: Sequence[Handling]) -> list[Batch]:
    """What is on its last attempt is called alone, so that no other takes it along when it fails."""
    together: list[Handling] = []
    alone: list[Handling] = []
    for each in members:
        (alone if called_alone(each.delivery.attempt, each.delivery.max_attempts) else together).append(each)
    return [Batch(some) for some in [together, *([each] for each in alone)] if some]


def name(delivery: Any) -> str:
    return f"Message {delivery.id} of {delivery.topic}"


def about(delivery: Any) -> dict[str, Any]:
    """For structured logs."""
    return {"message_id": delivery.id, "topic": delivery.topic, "attempt": delivery.attempt}


def _nothing() -> None:
    """No lease is renewed."""
