"""A message under way, and a batch of them: to those who call handlers both are as one."""

import asyncio
import time
from collections.abc import Callable, Sequence
from operator import methodcaller
from typing import Any, Literal, NamedTuple, TypeAlias

from bide.core.amounts import plural
from bide.core.options import MAX_ATTEMPTS
from bide.engines.base import Hold
from bide.queue.aio.delivery import AsyncDelivery
from bide.queue.beats import Beat, Places
from bide.queue.deliveries import ATTEMPTS, Together
from bide.queue.sync.delivery import Delivery
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.failed import failures
from bide.queue.tasks.items import called_alone
from bide.queue.tasks.outcome import Outcome

Why: TypeAlias = Literal["lost", "timeout", "stop", "place"]


class Taken(NamedTuple):
    """What the messages of one claim have in common."""

    in_sync: Callable[[Any], Delivery]
    unkept: Callable[[Hold], object] = lambda hold: None  # is told of a message whose lease is to be renewed no longer
    kept: Callable[[Hold, int], int] | None = None  # is told of a lease that is extended: for how long it is to be
    beat: Beat | None = None  # that keeps their leases, if they are renewed
    slot: int = 0  # where the claim log has the claim


class Handling:
    __slots__ = (
        "_sync_delivery",
        "alarm",
        "aside",
        "batch",
        "deadline",
        "delivery",
        "doomed",
        "over",
        "places",
        "runner",
        "stuck",
        "taken",
        "task",
        "told",
        "why",
    )

    def __init__(self, delivery: AsyncDelivery, task: Definition, taken: Taken) -> None:
        self.delivery: AsyncDelivery = delivery
        self.task: Definition = task
        self.taken: Taken = taken
        self.why: Why | None = None  # it was told to stop
        self.told: bool = False  # its end has been decided
        self.stuck: bool = False  # it goes on long after its timeout
        self.runner: asyncio.Task[None] | None = None
        self.aside: bool = False  # it waits for the engine without a place
        self.alarm: Callable[[], object] | None = None  # stops what watches its timeout
        self.deadline: float | None = None  # when that is over, by time.monotonic()
        self.over: float | None = None  # when its handler came to an end, if that ran in a thread
        self.doomed: Outcome | None = None  # its last attempt killed its process: it is buried, and never released
        self.places: Places | None = None  # in the gates of its task
        self.batch: Batch | None = None  # that it is handled in
        self._sync_delivery: Delivery | None = None
        delivery.kept = taken.kept
        claimed = delivery.claimed
        if (
            claimed.max_attempts == MAX_ATTEMPTS and ATTEMPTS not in claimed.headers
        ):  # then its task says how many, as for one sent in another language
            delivery.most = task.max_attempts

    def __str__(self) -> str:
        return name(self.delivery)

    def arguments(self) -> dict[str, Any]:
        """What the handler is called with. Raises Unread."""
        known = self.delivery.arguments
        return self.task.arguments.of_message(self.delivery.body) if known is None else known

    @property
    def ended(self) -> bool:
        """Whether the handler has ended the delivery by itself."""
        return self.delivery.ended or (self._sync_delivery is not None and self._sync_delivery.ended)

    @property
    def ending(self) -> bool:
        """Whether it has done so, or is about to and waits for the answer."""
        return self.delivery.ending or (self._sync_delivery is not None and self._sync_delivery.ending) or self.ended

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
        self.deadline = self.delivery.deadline = deadline

    def begins_work(self) -> None:
        """Its handler is called, and somebody listens to events."""
        self.delivery.at_work = time.monotonic()

    def was_late(self) -> None:
        """Its handler has returned after its timeout, and was not told to stop."""
        self.first_told("timeout")
        self.expire()

    def silence(self) -> None:
        """Its handler has come to an end: what comes after it has no timeout, and the alarm names the handling."""
        if self.alarm is not None:
            self.alarm()
            self.alarm = None

    def stick(self) -> None:
        self.stuck = True

    def expire(self) -> None:
        self.delivery.expired = True
        if self._sync_delivery is not None:
            self._sync_delivery.expired = True

    def present(self) -> Any:
        """The delivery in the colour of the handler. Once the handler has ended it, its lease is not renewed any more: in the
        handler's own transaction the end may be long before the commit, and holds the message until then.
        """
        if not self.task.is_async and self._sync_delivery is None:
            self._sync_delivery = self.taken.in_sync(self.delivery)
            self._sync_delivery.hold, self._sync_delivery.kept = self.delivery.hold, self.delivery.kept
            self._sync_delivery.deadline, self._sync_delivery.most = self.delivery.deadline, self.delivery.most
            if self.delivery.expired:
                self._sync_delivery.expired = True
        present = self._sync_delivery or self.delivery
        unkept, hold = self.taken.unkept, self.delivery.hold

        def ended() -> None:
            unkept(hold)

        present.on_end(ended, _nothing)
        return present


class Batch(Handling):
    __slots__ = ("_deliveries", "_going", "_items", "_told_to_stop", "failed", "members")

    def __init__(self, members: Sequence[Handling]) -> None:
        first = members[0]
        super().__init__(first.delivery, first.task.telling(self._answered), first.taken)
        self.members: Sequence[Handling] = members
        self._items = [item for each in members for item in (each.delivery.arguments or {}).values()]
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
    """The worker itself ends what its handler drops."""
