# unasync: sync/__init__.py
"""The seam: an engine's verbs, in the order of a message's life.

Every line below that begins with a dash is a promise, and the contract suite has a test of that name. Verbs are batch first:
a batch has at most MAX_BATCH items and is answered in its order. `now` is for tests and in-process engines, in milliseconds;
None means the engine's own clock, and a `now` that is behind the engine's time counts as the engine's time, which never goes
back. An instant (`at`) waits for the clock itself as it stands, which is then the `now` that was given. An expired message
counts as ended for every verb, although stats and scan may show it until tend or claim has met it.
"""

from abc import ABC, abstractmethod
from collections.abc import Collection, Hashable, Sequence

from bide.engines.base import (
    Capabilities,
    Claim,
    Condition,
    End,
    Ended,
    Hold,
    Move,
    NewMessage,
    Ref,
    Scanned,
    Seen,
    Stored,
    Swept,
    Tended,
    Window,
)
from bide.engines.gates.aio import AsyncGates
from bide.engines.results.aio import AsyncResults
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats


class AsyncEngine(ABC):
    """Where messages live. One namespace; topics are made on first use.

    - No verb on one topic changes another.
    - Namespaces do not see each other.
    - Engine time never goes back.
    - A batch over the limit is refused.
    """

    capabilities: Capabilities
    gates: AsyncGates  # locks and limits, where capabilities.gates says that there are any
    results: AsyncResults  # kept results, where capabilities.results says that there are any

    @abstractmethod
    async def open(self) -> None:
        """Connect, and make what is missing.

        - Opening again changes nothing.
        """

    @abstractmethod
    async def close(self) -> None:
        """Release all resources. What is stored stays where the engine is persistent.

        - Closing again changes nothing.
        - A closed engine refuses every verb.
        - Close wakes a sleeper.
        """

    def abandon(self) -> None:
        """In place of close, when the event loop that used the engine is closed: release what does not need that loop."""
        return

    def part_of(self, item: NewMessage | Ref | End) -> Hashable:
        """Which parts of the engine a call about this concerns; ANY_PART for what any may take; None if there is one part only.

        A part may not answer while others do, so it is better to ask for what others have in calls of its own.
        """
        return None

    def ahead(self, ref: Ref) -> int:
        """By how many ms engine time, as claims tell it, was ahead of the clock of the server that has this, at the last claim.

        It is 0 unless that clock was set back or is behind other servers'. Instants wait for it: they go by it.
        """
        return 0

    @abstractmethod
    async def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, brief: bool = False, now: int | None = None
    ) -> list[Sent]:
        """Accept messages, each answered with its id, due time and outcome.

        A batch is accepted whole or not at all, unless the engine has to take it in parts: then each part is. `brief`: a part
        of the engine that does not answer is not waited for.

        - A delay counts from the engine's now.
        - An instant in the past means now.
        - A message due later than the longest delay refuses its batch.
        - Answers come in the order of the batch.
        - The same operation acts once and gets the same answer.
        - An operation belongs to its topic and key.
        - An operation is forgotten after ten minutes.
        - Keep answers with the message that holds the key.
        - Error answers with the message that holds the key.
        - Replace gives a pending message a new body and time.
        - Later gives a pending message the new body and the later time.
        - Replacing starts the attempts again.
        - Keep and error answer with a running message.
        - Replace and later make a successor of a running message.
        - What is sent within a running message is its successor.
        - A running message without its key goes on without one.
        - A taken key is answered by the table of rules.
        - Bodies are merged by the rules.
        - Times of a message that is moved later go by the rules.
        - What is sent once in its time may come in batches.
        - A key is free when its message has ended.
        - A key belongs to its topic.
        - Messages of one batch may share a key.
        - Later moves a message no further than its longest wait.
        - A longest wait never makes a message due sooner.
        - A delivery ends a longest wait.
        - Merge gathers bodies in the first message.
        - A body grows to any size up to its largest.
        - Only a list can be merged into.
        - What was delivered is not changed.
        - A batch and a repeated operation gather once.
        - A key is sent once in its time whatever becomes of the message.
        - A key may be sent again when its time is over.
        - A time begins with a message that is accepted.
        - A batch and a repeated operation count once.
        - Times that are over are forgotten.
        - A message may come with the attempts that it has had.
        - A message that comes with its last attempt is delivered once more only.
        - A dead letter may come as it was.
        - A dead letter that comes takes no key.
        - A batch with a past acts once.
        - A connection that can't be joined is refused.
        - An empty batch is answered with nothing.
        """

    @abstractmethod
    async def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        """Hand out due messages in one atomic step. `lease` is in milliseconds; `request` names this claim.

        With fewer places than topics those named first are served, so callers name them in turn. A priority counts
        within its topic.

        - A message is never handed out early.
        - An instant is never handed out before the clock has reached it.
        - A delay counts on engine time.
        - The last time that a message was given says which time it waits for.
        - An instant stays one when its lease ends.
        - An instant does not expire while the clock is behind it.
        - What waits for the clock is scheduled.
        - A due message is handed out to one holder at a time.
        - A claim takes no more than its limit.
        - What is due first comes first.
        - What was sent first comes first among equals.
        - Higher priority comes first.
        - Low priority is not starved.
        - No topic starves another.
        - Bodies and headers come back as they were sent.
        - Attempts count from one.
        - Since tells when a message first fell due.
        - Began tells when the first attempt began.
        - Began tells when a lease that ended began.
        - A new time makes a message forget when its first attempt began.
        - Replacing makes a message forget when its first attempt began.
        - Requeue makes a message forget when its first attempt began.
        - Tokens rise as text with each delivery of a message.
        - The same request gives the same deliveries.
        - A claim of no topics gives only what its request still holds.
        - A claim tells when to come back.
        - A claim that tells when upkeep is needed tells it in time.
        - An expired message is not handed out.
        - Expiry counts from the due time.
        - A paused topic hands out nothing and tells no time.
        """

    @abstractmethod
    async def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        """End deliveries, each answered for itself with what became of its message.

        - Done ends a message for good.
        - Retry makes a message due after the delay.
        - Retry after the last attempt buries with the error.
        - Retry may give a message more attempts.
        - Retry may give a message fewer attempts.
        - An error may hold any character.
        - Release gives a message back without counting the attempt.
        - Release without a delay keeps the due time.
        - A message set aside comes back before it expires.
        - Dead buries a message with its reason.
        - An old token is lost and changes nothing.
        - Acks of what is none of its own are lost.
        - A delivery ends once.
        - Each end is answered for itself.
        - A late end counts while nobody has taken the lease back.
        - A message that would come back after its expiry ends.
        - Records of failed attempts are kept with the message.
        - The end of a lease is recorded as an attempt.
        - Releases leave no record.
        - A retry that gives more attempts keeps the records.
        - The last ten records are kept.
        - Long records leave room for fewer.
        - Requeue keeps the records of the life before.
        - Replacing drops the records.
        - Records do not outlive their message.
        """

    @abstractmethod
    async def extend(self, holds: Sequence[Hold], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        """Let leases end so many milliseconds from now; False for a delivery that is lost.

        `brief`: for whoever keeps many leases. A part of the engine that does not answer is not waited for, so that the leases
        of other parts, and those of later calls, don't end meanwhile. It raises OutcomeUnknown, with the answers of the others.

        - An extended lease ends later.
        - Deliveries of one claim are extended apart and together.
        - An old token extends nothing.
        """

    @abstractmethod
    async def cancel(
        self,
        refs: Sequence[Ref],
        *,
        seen: Sequence[Seen] | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[CancelResult]:
        """End pending messages.

        `seen`: what was seen of each, all named once, by their ids, and no more than the engine ends together. Those that have
        changed since are gone. If one answer is another than cancelled, none of them has ended.

        - A cancelled message is never handed out.
        - Cancel by key is cancel by id.
        - Cancelling a running message leaves it running.
        - Cancelling a dead letter says dead and leaves it.
        - Cancelling what has ended says gone.
        - Messages that were seen end together or not at all.
        - A message that has changed since it was seen does not end.
        - An id that is spelled otherwise names no message.
        """

    @abstractmethod
    async def reschedule(
        self,
        moves: Sequence[Move],
        *,
        condition: Condition | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[RescheduleResult]:
        """Give pending messages a new time.

        `condition`: of an engine that ends messages together, and of no more than so many. If it does not hold, nothing is
        changed, and each answer is gone. With it, and where moves tell what was seen, messages are named once, by their ids.

        - A rescheduled message is due at its new time only.
        - A rescheduled message keeps its key and its attempts.
        - Expiry moves with the due time.
        - Rescheduling a running message leaves it running.
        - Rescheduling a dead letter says dead and leaves it.
        - Rescheduling what has ended says gone.
        - Rescheduling beyond the longest delay refuses its batch.
        - A delay may count from the due time.
        - A message that has another time than was seen is left alone.
        - Nothing is rescheduled unless the condition holds.
        - A message set aside can be called back to the front.
        """

    @abstractmethod
    async def tend(self, budget: int = 1_000, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        """Do a bounded piece of upkeep; any caller may, any number at once.

        A caller that holds leases names with `ended_by` an instant, in the engine's time, at which none of them has ended: it
        would take back its own after a pause, or a step of the clock. The answer names waiters at gates whose turn has come,
        and those again that were called and have not come: the caller tells them.

        - A message whose lease has ended comes back.
        - A lease that ended after the named instant is left alone.
        - A lease that ends on the last attempt buries its message.
        - Tend removes what has expired.
        - Tend removes only results that are over.
        - Dead letters that are too old are dropped and counted.
        - A dead letter that died again is as old as its last death.
        - Dead letters that are too many are dropped and counted.
        - A dead letter that is too old and one too many is counted once.
        - A place whose lease has ended calls who waits.
        - Tend calls none that no longer asks.
        - Who was called and does not come is named again.
        - Who does not come in its turn loses it.
        - Tend tells when gates need it again.
        - Tend does no more than its budget.
        - Tend calls no more than its budget.
        """

    @abstractmethod
    async def wait(self, topics: Sequence[str], timeout: float) -> None:
        """Sleep until something may be due, at most so many seconds by the caller's clock. A hint, not a promise.

        Callers claim again every SWEEP seconds, in case a wake-up was lost. An engine whose claims tell when upkeep is needed
        does that sweep itself, so callers may sleep longer: wait ends when something is due, or will be soon, or upkeep is.

        - Wait ends at its timeout.
        - A message that is due wakes a sleeper.
        - A message due sooner than all others wakes a sleeper.
        - A message that came before the sleeper is not slept on.
        - What a claim leaves behind wakes another sleeper.
        - One message wakes one sleeper.
        """

    @abstractmethod
    async def get(self, refs: Sequence[Ref], *, brief: bool = False, now: int | None = None) -> list[Stored | None]:
        """What is stored about messages. `brief` as with `extend`: a part of the engine that does not answer is not waited for.

        - Get tells what is stored.
        - Get of what has ended is none.
        - Get and scan tell which claim holds a message and since when.
        - Get and scan tell since when a message waits and the token of its lease.
        - Nobody holds a message since a time to come.
        """

    @abstractmethod
    async def scan(
        self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None
    ) -> Scanned:
        """A page of a topic: pending messages by due time, then leased ones by due time, then dead ones by the time of their
        death. `after` goes on where a page ended. An engine without `inspect` is only asked for dead ones.

        - Pages together show every message once.
        - Dead letters come in the order in which they died.
        - A page holds one state when asked.
        - A page mark that is not ours is refused.
        - A large topic is listed whole and in due order.
        """

    @abstractmethod
    async def stats(
        self, topic: str | None = None, *, but: Collection[str] = (), window: Window | None = None, now: int | None = None
    ) -> Stats:
        """Counts of a topic, or of all `but` some; with a window also how much of each falls due in each of its parts.

        More than 10,000 messages of a topic, scheduled, ready, or in a window that may be `about`, an engine may estimate.

        - Counts agree with a full scan.
        - Counts leave out the topics that are not asked for.
        - A message that moves meanwhile is counted once.
        - Nothing is left when all has ended.
        - The timeline counts what is pending.
        - Counts of a large topic are exact.
        - Counts beyond ten thousand are exact or said to be about.
        - A window beyond ten thousand is exact or said to be about.
        - The first due times of a large topic are exact.
        - The timeline of a large topic is exact.
        """

    @abstractmethod
    async def requeue(
        self,
        topic: str,
        ids: Sequence[str] | None = None,
        *,
        delay: int = 0,
        over: int = 0,
        limit: int = 1_000,
        now: int | None = None,
    ) -> Swept:
        """Give dead messages a new life; all of the topic's, oldest first, without ids. With `over`, number n of them is due
        n * over // limit later than number 0.

        - A requeued message has all its attempts again.
        - A requeued message takes its key back if it is free.
        - Requeue tells how many came back without their key.
        - Requeue leaves what is not dead alone.
        - Requeue spreads due times evenly.
        - Requeue beyond the longest delay is refused.
        """

    @abstractmethod
    async def purge(
        self, topic: str, state: State, ids: Sequence[str] | None = None, *, limit: int = 1_000, now: int | None = None
    ) -> Swept:
        """Drop messages of one state, which is not leased: those end with their lease. Ids name dead ones only: cancel ends
        pending messages by their ids. An engine without `inspect` is only asked to drop dead ones.

        - Purge drops one state of one topic.
        - Purge by id drops only those dead letters.
        - Purge of the leased is refused.
        - Purge of pending messages by id is refused.
        """

    @abstractmethod
    async def pause(self, topic: str, paused: bool) -> None:
        """Stop handing out a topic's messages, or go on.

        - Once a pause has answered, nothing more is handed out.
        - What was handed out before a pause can still end.
        - Resuming wakes a sleeper.
        """
