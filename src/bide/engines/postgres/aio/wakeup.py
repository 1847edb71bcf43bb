# unasync: ../sync/wakeup.py
"""How receivers sleep until there may be a message for them: one of them reads the server's notifications for all.

A notification is a hint: a lost one costs a sweep. Through a pooler there are none, and receivers look four times a second.
"""

import contextlib
import math
import threading
import time
from collections.abc import Callable, Collection, Sequence

import psycopg

from bide.engines.base import SWEEP
from bide.engines.callers import Sleeper, Sleepers
from bide.engines.postgres.aio.connections import AsyncConnections
from bide.engines.postgres.layout import filled
from bide.engines.postgres.recent import AGAIN, MOMENT, Notices, Recent, look_again
from bide.engines.postgres.rows import CALLS, heard_of
from bide.engines.postgres.statements import AsyncLimited
from bide.errors import EngineError
from bide.wakeable import AsyncSignal

POLL = 0.25  # seconds between two looks without notifications
SILENT = 5.0  # seconds after which the connection that listens is asked whether it is alive
PING = 1.0  # seconds for its answer
GONE = 1.0  # seconds: who was woken and has not looked by then was cancelled, and another one looks
MANY = 1_000  # topics: of more, those are forgotten that nobody has asked for lately
AWAY = 0.5  # seconds of sleep when the server is away, before the caller tries again


class AsyncWaker:
    def __init__(self, connections: AsyncConnections, channel: str, lower: Callable[[str, int], None], *, polls: bool) -> None:
        self._connections = connections
        self._channel = channel
        self._lower = lower  # is called with the topic and the due time of what was heard of
        self._polls = polls
        self._sleepers: Sleepers[str] = Sleepers()
        self._lock = threading.Lock()  # never held while anything is waited for
        self._listening: AsyncLimited | None = None
        self._heard = 0.0  # when the server last said something to it
        self._since = 0.0  # when it began to listen: what was told before, and left untold after that, has to be looked for
        self._others_sleep = 0.0  # when it last heard of a topic on which more than one slept
        self._leader: Sleeper[str] | None = None  # who reads for all
        self._asleep: set[AsyncSignal] = set()
        self._heard_of: Recent = Recent()
        self._looked: Recent = Recent()
        self._again: dict[str, float] = {}  # when somebody has to look again
        self._most = MANY  # in it, before it is looked through
        self.sends: Notices = Notices()
        self.claims: Notices = Notices()  # of messages that a claim has left; they may be of some of its topics only
        self._closed = False

    def quiet(self, telling: Notices, topics: Collection[str]) -> list[str]:
        """Those of the topics that others were told of a moment ago, so that a call which begins now need not tell."""
        return [] if self._asleep else telling.quiet(topics, time.monotonic())

    async def told(self, telling: Notices, topics: Collection[str], quiet: Collection[str], began: float, due: int) -> None:
        """A call that told of due messages, but not of its quiet topics, has ended. If it took too long, tell of them now."""
        if len(quiet) < len(topics):
            telling.told(topics if not quiet else set(topics).difference(quiet), began)
        late = telling.untold(quiet, now := time.monotonic()) if quiet else ()
        if late:
            with contextlib.suppress(EngineError):  # a hint
                await self._connections.run(filled(CALLS["tell"], self._channel), [late, due], repeats=False)
                telling.told(late, now)

    def looked(self, topics: Sequence[str], began: float, due: float | None) -> None:
        """A claim that began then has ended. Others may have to follow, after the last notification.

        due: when a message of these topics will be due, as far as the claim knows. Its caller may be gone or busy by then.
        """
        self._looked.note(topics, began)
        for topic in topics:
            self._note_again(topic, looked=began, due=due)
        if time.monotonic() > began + MOMENT:  # it took so long that what was heard meanwhile may be forgotten
            with self._lock:
                self._sleepers.wake(topics)

    def _note_again(self, topic: str, *, looked: float, due: float | None = None) -> None:
        again = look_again(max(self._heard_of.at(topic), self._since), looked)
        late = due + AGAIN[0] if due is not None else None  # who knows of it looks first, and notes what comes after it
        if again is not None or late is not None:
            self._again[topic] = min(each for each in (again, late) if each is not None)
        else:
            self._again.pop(topic, None)
        if len(self._again) > self._most:
            self._forget(time.monotonic() - SWEEP)
            self._most = max(MANY, 2 * len(self._again))

    def _forget(self, past: float) -> None:
        """Topics of single messages, as of answers: nobody comes for them again, or he looks first."""
        for topic, at in list(self._again.items()):
            if at < past and not self._sleepers.has(topic):
                self._again.pop(topic, None)

    async def wait(self, topics: Sequence[str], timeout: float) -> None:
        now = time.monotonic()
        if any(0.0 < self._looked.at(topic) < self._since for topic in topics):
            self._looked.note(topics, now)
            return  # of what came after that claim, and before this began to listen, nobody was told: the caller looks now
        soon = [self._again[topic] - now for topic in topics if topic in self._again]
        end = now + min([timeout, *soon, *([POLL] if self._polls else [])])
        signal = AsyncSignal()
        sleeper: Sleeper[str] = Sleeper(signal, topics)
        with self._lock:
            if self._closed or not self._sleepers.add(sleeper):
                return
            self._asleep.add(signal)
        try:
            while not self._is_over(sleeper) and self._since <= now and time.monotonic() < end:
                if self._polls or not self._leads(sleeper):
                    await signal.wait(end - time.monotonic())
                    signal.clear()
                elif await self._read(end):
                    break
        except BaseException:
            self._leave(sleeper, signal, cancelled=True)
            raise
        self._leave(sleeper, signal)
        now = time.monotonic()
        for topic in topics:
            if self._again.get(topic, math.inf) < now:
                self._again[topic] = now + GONE  # the caller looks now

    def _is_over(self, sleeper: Sleeper[str]) -> bool:
        return self._closed or sleeper.woken_by is not None

    def _leads(self, sleeper: Sleeper[str]) -> bool:
        with self._lock:
            if self._leader is None:
                self._leader = sleeper
            return self._leader is sleeper

    def _leave(self, sleeper: Sleeper[str], signal: AsyncSignal, *, cancelled: bool = False) -> None:
        """Stop sleeping, and let another one read. A caller that was cancelled after it was woken wakes another one."""
        with self._lock:
            self._asleep.discard(signal)
            self._sleepers.remove(sleeper)
            if cancelled and sleeper.woken_by is not None:
                self._sleepers.wake([sleeper.woken_by])
            if self._leader is sleeper:
                self._leader = None
            if self._leader is None:  # also when this one was to read next, and ends before it has begun
                for other in list(self._asleep)[:1]:
                    other.set()

    async def _read(self, end: float) -> bool:
        """Read notifications until there is one for this sleeper. True: something may have been missed, so look."""
        try:
            if self._listening is None or self._listening.closed:
                await self._listen()
                return True
            if time.monotonic() > self._heard + SILENT:
                await self._listening.execute(b"select 1")  # or a network that has gone silent would be taken for an idle one
                self._heard = time.monotonic()
            until = min([end, time.monotonic() + POLL, *self._checks()])  # a claim may note meanwhile when to look again
            async for note in self._listening.notifies(timeout=max(0.0, until - time.monotonic()), stop_after=1):
                with self._lock:
                    self._hear(note.payload)
            with self._lock:
                self._look_again()
        except (psycopg.Error, OSError, EngineError):
            listening, self._listening = self._listening, None
            if listening is not None:
                await listening.close()
            await AsyncSignal().wait(max(0.0, min(AWAY, end - time.monotonic())))
            return True
        return False

    async def _listen(self) -> None:
        connection = await self._connections.connect()
        try:
            await connection.execute(f'listen "{self._channel}"'.encode())
        except BaseException:
            await connection.drop()
            raise
        connection.limit = PING
        self._listening = connection
        self._heard = self._since = time.monotonic()
        for other in list(self._asleep):  # whoever slept already has been told of nothing
            other.set()
        if self._closed:  # meanwhile
            await self.close()

    def _hear(self, payload: str) -> None:
        self._heard = time.monotonic()
        if (note := heard_of(payload)) is not None:
            topic, due = note
            self._lower(topic, due)
            self._heard_of.note([topic], self._heard)
            if self._sleepers.has(topic) or self._looked.at(topic):  # nobody here comes for another topic's wake-up
                self._sleepers.wake([topic])
                self._again[topic] = min(self._again.get(topic, self._heard + GONE), self._heard + GONE)
            if self._sleepers.has(topic):
                self._others_sleep = self._heard

    def _checks(self) -> list[float]:
        """When to see whether one more has to be woken: who was woken may have looked too early, and not come again."""
        now = time.monotonic()
        due = [self._again[topic] for topic in self._sleepers.topics() if topic in self._again]
        return [*due, *(at for at in (self._others_sleep + after for after in AGAIN) if at > now)]

    def _look_again(self) -> None:
        now = time.monotonic()
        for topic in [topic for topic in self._sleepers.topics() if self._again.get(topic, math.inf) <= now]:
            self._note_again(topic, looked=now)
            self._again[topic] = min(self._again.get(topic, math.inf), now + GONE)  # this one may be cancelled, too
            self._sleepers.wake([topic])

    async def close(self) -> None:
        self._closed = True
        for signal in list(self._asleep):
            signal.set()
        listening, self._listening = self._listening, None
        if listening is not None:
            await listening.close()

    def abandon(self) -> None:
        self._closed = True
        listening, self._listening = self._listening, None
        if listening is not None:
            listening.pgconn.finish()
