"""The RabbitMQ engine: puts climb the ladder, claims take what the broker has delivered, and ends are acknowledged."""

import asyncio
from collections.abc import Collection, Sequence
from typing import NoReturn

from bide.core.times import due_time
from bide.engines.aio import AsyncEngine
from bide.engines.base import (
    MAX_BATCH,
    Capabilities,
    Claim,
    Claimed,
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
from bide.engines.each import keep_each
from bide.engines.rabbitmq.aio import topology
from bide.engines.rabbitmq.aio.clock import AsyncBrokerClock
from bide.engines.rabbitmq.aio.dead_letters import AsyncDeadLetters, AsyncLost
from bide.engines.rabbitmq.aio.ends import LATER, AsyncEndings, Ending
from bide.engines.rabbitmq.aio.inbox import AsyncInbox
from bide.engines.rabbitmq.aio.line import AsyncBrokerLine
from bide.engines.rabbitmq.aio.parked import AsyncParkedDeliveries
from bide.engines.rabbitmq.aio.send import AsyncSender
from bide.engines.rabbitmq.aio.topology import AsyncTopicQueues
from bide.engines.rabbitmq.failures import told
from bide.engines.rabbitmq.holdings import SUSPECT, Arrived, Held, Holdings
from bide.engines.rabbitmq.label import DeliveryEnd, label_of, lease_ended, outcome
from bide.engines.rabbitmq.ladder import QueueNames
from bide.engines.rabbitmq.location import Address
from bide.errors import BadTime, BideError, OutcomeUnknown, SchemaMismatch, Unavailable, Unsupported
from bide.ids import sequence
from bide.types import CancelResult, RescheduleResult, Sent, State, Stats

OPENING = 60.0  # seconds: the ladder has 1,322 bindings, which are made once


class AsyncWithoutVerbs(AsyncEngine):
    """The guard refuses these before, with a sentence that names the engines that can."""

    async def cancel(
        self,
        refs: Sequence[Ref],
        *,
        seen: Sequence[Seen] | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[CancelResult]:
        _refuse()

    async def reschedule(
        self,
        moves: Sequence[Move],
        *,
        condition: Condition | None = None,
        connection: object | None = None,
        now: int | None = None,
    ) -> list[RescheduleResult]:
        _refuse()

    async def get(self, refs: Sequence[Ref], *, brief: bool = False, now: int | None = None) -> list[Stored | None]:
        _refuse()

    async def stats(
        self, topic: str | None = None, *, but: Collection[str] = (), window: Window | None = None, now: int | None = None
    ) -> Stats:
        _refuse()

    async def pause(self, topic: str, paused: bool) -> None:
        _refuse()


def _refuse() -> NoReturn:
    raise Unsupported("RabbitMQ can't find, change or count messages that wait. Redis, PostgreSQL and SQLite can.")


class AsyncRabbit(AsyncWithoutVerbs):
    def __init__(
        self, address: Address, capabilities: Capabilities, names: QueueNames, holdings: Holdings, dead_for: int, dead_max: int
    ) -> None:
        self.capabilities = capabilities
        self._address = address
        self._names = names
        self._holdings = holdings
        self._time = holdings.time
        self._line = AsyncBrokerLine(address, confirms=True)
        self._topics = AsyncTopicQueues(address, names, self._line, dead_max)
        self._sender = AsyncSender(address, names, self._line, self._topics)
        self._dead_letters = AsyncDeadLetters(address, names, self._line, self._sender)
        self._lost = AsyncLost(address, names, self._line, self._sender, self._topics, dead_for)
        self._endings = AsyncEndings(address, self._sender, self._topics, holdings, dead_for)
        self._topics.looking = self._endings.line
        self._inbox = AsyncInbox(address, names, self._topics, holdings, self._endings)
        self._new_id = sequence()
        self._parking = AsyncParkedDeliveries(address, names, self._endings, self._sender, holdings)
        self._telling = AsyncBrokerClock(self._line, self._time, names.prefix)
        self._opening = asyncio.Lock()
        self._opened = False
        self._closing: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None  # an opening that nobody waits for any more

    async def open(self) -> None:
        async with self._opening:
            if not self._opened:
                opening = asyncio.get_running_loop().create_task(self._open())
                try:
                    await asyncio.shield(opening)
                except asyncio.CancelledError:
                    self._leaving = asyncio.get_running_loop().create_task(self._leave(opening))
                    raise
                except Exception:
                    await self._line.drop()
                    raise

    async def _leave(self, opening: "asyncio.Task[None]") -> None:
        """Hang up when it has ended: amid an answer of the broker, the driver would close the channel, and then once more."""
        await asyncio.gather(opening, return_exceptions=True)
        await self._line.drop()

    async def _open(self) -> None:
        self._endings.loop = asyncio.get_running_loop()
        with told(self._address.shown):
            async with asyncio.timeout(max(OPENING, self._address.timeout)):
                channel = await self._line.another()
                if not await topology.is_made(channel, self._names):
                    if not self._address.make:
                        raise SchemaMismatch(
                            f"{self._address.shown} has nothing of bide in the namespace {self._address.namespace} yet: it is "
                            "made when the first message is sent, or when a worker starts."
                        )
                    channel = await self._line.another()
                    await topology.make(channel, self._names)
                await channel.close()
        await self._test()
        if not await self._line.is_blocked():
            await self._telling.first()
        self._opened = True

    async def _test(self) -> None:
        """Whether the broker loses nothing; once for all engines of the process. One that is full takes nothing, either."""
        if not self._holdings.sound and not await self._line.is_blocked():
            channel = await self._line.another()
            with told(self._address.shown):
                self._holdings.sound = await topology.probe(channel, self._names, self._address.timeout)
                if self._holdings.sound:
                    await channel.close()

    async def close(self) -> None:
        """To the end, also when the caller is cancelled: the driver would close the channel with all deliveries on it."""
        if self._closing is None or self._closing.done():
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        await self._telling.close()
        await self._parking.close()
        await self._inbox.close()
        await self._line.close()

    def abandon(self) -> None:
        self._inbox.abandon()
        self._line.abandon()

    async def put(
        self, messages: Sequence[NewMessage], *, connection: object | None = None, brief: bool = False, now: int | None = None
    ) -> list[Sent]:
        """To the end, also when the caller is cancelled: the driver would take a half-open channel for an error of all."""
        return await asyncio.shield(self._inbox.do(self._put(messages, now)))

    async def _put(self, messages: Sequence[NewMessage], now: int | None) -> list[Sent]:
        await self._test()
        self._telling.see_to()
        time = self._time.now(now)
        labels = [label_of(new, self._new_id(), self._due(new.delay, new.at, time)) for new in messages]
        if not labels:
            return []
        for new in messages:
            self._sender.check(new.body)
        sent = [Sent(each.id, each.topic, each.due, "created") for each in labels]
        failed = await self._sender.send([(each, new.body) for each, new in zip(labels, messages, strict=True)], time)
        errors = [error for error in failed if error is not None]
        if not errors:
            return sent
        if len(errors) == len(sent) and not any(isinstance(error, OutcomeUnknown) for error in errors):
            raise errors[0]
        if len(sent) == 1:
            raise errors[0]
        answers = [one if error is None else None for one, error in zip(sent, failed, strict=True)]
        raise keep_each(OutcomeUnknown(f"{errors[0]} This was a part of the batch.", answers=answers), failed)

    async def claim(
        self, topics: Sequence[str], limit: int, lease: int, *, request: str | None = None, now: int | None = None
    ) -> Claim:
        told = self.held(request, now)
        if told.messages or not topics:
            return told
        self._telling.see_to()
        time = self._time.now(now)
        found = self._take(topics, limit, request, time, time + lease)
        if len(found) < limit:
            await self._inbox.receive(topics, limit - len(found), patient=not found)
            time = self._time.now(now)
            found += self._take(topics, limit - len(found), request, time, time + lease)
        if not found and await self._inbox.more(topics):
            time = self._time.now(now)
            found = self._take(topics, limit, request, time, time + lease)
        self._inbox.hand_on(topics)
        if found:
            self._parking.watch()
        return Claim(found, time, None)

    def held(self, request: str | None, now: int | None = None) -> Claim:
        """What a claim of this name has brought and this process still holds: the broker is not asked."""
        found = [] if request is None else [held.delivered.claimed() for held in self._holdings.of_request(request)]
        return Claim(found, self._time.now(now), None)

    async def settle(self, ends: Sequence[End], *, connection: object | None = None, now: int | None = None) -> list[Ended]:
        """To the end, also when the caller is cancelled: the driver would close the channel with all deliveries on it."""
        return await asyncio.shield(self._inbox.do(self._settle(ends, now)))

    async def _settle(self, ends: Sequence[End], now: int | None) -> list[Ended]:
        time = self._time.now(now)
        held = [self._holdings.take(Hold(end.topic, end.id, end.token)) for end in ends]
        asked = [
            (place, each, outcome(end, each.delivered, time))
            for place, (end, each) in enumerate(zip(ends, held, strict=True))
            if each is not None
        ]
        found = await self._end([(each, what) for _, each, what in asked])
        answers: list[Ended | BideError] = ["lost"] * len(ends)
        for (place, _, _), answer in zip(asked, found, strict=True):
            answers[place] = answer
        return _told(answers)

    async def extend(self, holds: Sequence[Hold], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        return self.renew(holds, lease, now)

    def renew(self, holds: Sequence[Hold], lease: int, now: int | None = None) -> list[bool]:
        """Leases are this process's own: the broker is not asked."""
        until = self._time.now(now) + lease
        return [self._holdings.extend(hold, until) for hold in holds]

    async def tend(self, budget: int = MAX_BATCH, *, ended_by: int | None = None, now: int | None = None) -> Tended:
        return await asyncio.shield(self._inbox.do(self._tend(budget, ended_by, now)))

    async def _tend(self, budget: int, ended_by: int | None, now: int | None) -> Tended:
        time = self._time.now(now)
        ended = self._holdings.take_ended(time if ended_by is None else min(time, ended_by), budget)
        what = [lease_ended(each.delivered, time, each.began) for each in ended]
        answers = await self._end(list(zip(ended, what, strict=True)))
        await self._lost.bring_back(time)
        return Tended(
            returned=sum(not isinstance(each, BideError) for each in answers),
            buried=answers.count("dead"),
            expired=answers.count("expired"),
            more=len(ended) == budget,
        )

    async def wait(self, topics: Sequence[str], timeout: float) -> None:
        await self._inbox.wait(topics, timeout)

    async def scan(
        self, topic: str, state: State | None, limit: int, after: str | None = None, *, now: int | None = None
    ) -> Scanned:
        return await self._dead_letters.scan(topic, limit, after)

    async def requeue(
        self,
        topic: str,
        ids: Sequence[str] | None = None,
        *,
        delay: int = 0,
        over: int = 0,
        limit: int = MAX_BATCH,
        now: int | None = None,
    ) -> Swept:
        time = self._time.now(now)
        self._due(delay + over, None, time)
        await self._lost.bring_back(time, at_once=True)
        return await self._dead_letters.requeue(topic, ids, limit, lambda n: time + delay + n * over // limit, time)

    async def purge(
        self, topic: str, state: State, ids: Sequence[str] | None = None, *, limit: int = MAX_BATCH, now: int | None = None
    ) -> Swept:
        return await self._dead_letters.purge(topic, ids, limit)

    def _due(self, delay: int, at: int | None, now: int) -> int:
        due = due_time(delay, at, now, now)
        if due > now + self.capabilities.max_delay:
            raise BadTime("A message in RabbitMQ can't be due more than eight and a half years from now.")
        return due

    def _take(self, topics: Sequence[str], limit: int, request: str | None, now: int, until: int) -> list[Claimed]:
        """By turns, so that those named first are served first and none is left out."""
        found: list[Claimed] = []
        left = list(topics)
        while left and len(found) < limit:
            for topic in list(left):
                arrived = self._inbox.next(topic, now)
                if arrived is None:
                    left.remove(topic)
                elif (claimed := self._hold(arrived, request, now, until)) is not None:
                    found.append(claimed)
                    if len(found) == limit:
                        break
        return found

    def _hold(self, arrived: Arrived, request: str | None, now: int, until: int) -> Claimed | None:
        """None: the message may not be handled now, and what is to become of it is seen to."""
        delivered = arrived.delivered
        if delivered.label.expired(now):
            self._inbox.do(self._endings.see_to([Ending(arrived, DeliveryEnd("expired"))]))
        elif delivered.attempt > delivered.label.most:
            self._inbox.do(self._endings.see_to([Ending(arrived, lease_ended(delivered, now))]))
        elif delivered.lost >= SUSPECT and (delivered.count > delivered.known or self._holdings.has_suspect()):
            self._inbox.do(self._endings.send_round([arrived], self._holdings.losses.turn(now) - now))
        elif not self._holdings.add(Held(arrived, self._endings, request, now, until)):
            self._inbox.do(self._endings.send_round([arrived], LATER))
        else:
            return delivered.claimed()
        return None

    async def _end(self, wanted: Sequence[tuple[Held, DeliveryEnd]]) -> list[Ended | BideError]:
        """Each by whoever received it. What can't be ended for now is held on to."""
        answers: list[Ended | BideError] = [Unavailable("")] * len(wanted)
        for keeper in {held.keeper for held, _ in wanted}:
            places = [place for place, (held, _) in enumerate(wanted) if held.keeper is keeper]
            endings = [Ending(wanted[place][0].arrived, wanted[place][1]) for place in places]
            assert isinstance(keeper, AsyncEndings)
            try:
                found = await keeper.run(lambda keeper=keeper, endings=endings: keeper.end(endings))  # type: ignore[misc]
            except BideError as error:
                found = [error] * len(places)
            for place, answer in zip(places, found, strict=True):
                answers[place] = answer
                is_lost = keeper.is_gone or wanted[place][0].arrived.channel.is_closed
                if isinstance(answer, BideError) and not is_lost and not self._holdings.put_back(wanted[place][0]):
                    copied = [Ending(wanted[place][0].arrived, DeliveryEnd("done"))]  # its copy is here already
                    self._inbox.do(keeper.run(lambda keeper=keeper, copied=copied: keeper.see_to(copied)))  # type: ignore[misc]
        return answers


def _told(answers: Sequence[Ended | BideError]) -> list[Ended]:
    """The answers, unless one of them is an error."""
    errors = [each for each in answers if isinstance(each, BideError)]
    if not errors:
        return [each for each in answers if not isinstance(each, BideError)]
    if len(errors) == len(answers) and not any(isinstance(each, OutcomeUnknown) for each in errors):
        raise errors[0]
    raise OutcomeUnknown(str(errors[0]), answers=[None if isinstance(each, BideError) else each for each in answers])
