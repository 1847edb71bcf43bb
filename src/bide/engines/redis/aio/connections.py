# unasync: ../sync/connections.py
"""Connections to a server, and how a shard's scripts run on them.

Each connection has a lane: a stream of numbered operations. A command that gets no answer is sent again under its number,
on a new socket, and acts once.
"""

import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

import redis.exceptions as theirs

from bide.engines.redis.confirm import AT_ONCE, SURE, Confirmation, syncs_at_once, touch
from bide.engines.redis.failures import (
    LOST,
    OtherSpread,
    TooOld,
    Tries,
    Unanswered,
    Unconfirmed,
    Unpinned,
    about_a_slot,
    is_replica,
    kept_from,
    missing_script,
    of_replica,
    passing,
    read_only,
    refused,
    refuses_changes,
    translated,
)
from bide.engines.redis.presence import Excuse
from bide.engines.redis.protocol import Text
from bide.engines.redis.script import LOOKS, Script
from bide.engines.redis.server import AsyncServer, texts
from bide.errors import Unavailable
from bide.ids import lane
from bide.rounds import AsyncAside
from bide.wakeable import AsyncSignal

UNSURE = "What was sent before that may or may not have happened."
MOST = 32  # connections that one engine has open at a time


class AsyncConnection:
    def __init__(self, server: AsyncServer) -> None:
        self._server = server
        self.retry_for: float = server.retry_for
        self._driver: Any = None  # redis-py's connection, while no command is under way
        self._version = 0  # of the server, when that was made
        self.lane: str = lane()
        self.number: int = 0  # of the latest operation; the server refuses lower ones
        self._at_once: tuple[Any, float] = (None, 0.0)  # has all on the disk at once: the other end of this, until then

    async def command(self, *args: Any, retry_for: float | None = None, as_write: bool = False) -> Any:
        """The answer to a command that may be repeated. `as_write`: while the server takes no writes, it waits."""
        return await self.run(None, (), texts(args), retry_for=retry_for, as_write=as_write)

    async def run(
        self,
        script: Script | None,
        keys: Sequence[str],
        args: Sequence[Text],
        *,
        retry_for: float | None = None,
        insist: bool = False,
        as_write: bool = False,
        confirmation: Confirmation | None = None,
    ) -> Any:
        """The answer to a script or a command. Raises Unanswered when it may or may not have run.

        It is retried until there is an answer, for `retry_for` seconds at most; as long as usual if it may have run and is to
        `insist` on hearing so, else no answer is waited for any longer than that. With a confirmation it also raises
        Unconfirmed.
        """
        command: tuple[Text, ...] = tuple(args) if script is None else ("EVALSHA", script.sha, str(len(keys)), *keys, *args)
        tries, presence = Tries(self.retry_for, retry_for), self._server.presence
        within = presence.patience(retry_for) if retry_for and retry_for < self.retry_for else None
        if self._server.look_at < tries.began:
            await self._server.look_again()
        while True:
            driver = self._taken()
            presence.ask(self)
            try:
                if driver is None:
                    driver = await self._server.connect(within=within)
                    self._version = self._server.version
                if as_write:
                    answer = await self._ask_as_write(driver, command, None if insist else within)
                else:
                    await self._server.send_texts(driver, command)
                    answer = _checked(script, await self._server.answer(driver, None if insist else within))
                presence.answer(self)
                if confirmation is not None:
                    await self._confirm(driver, confirmation, keys[0], answer, tries, insist=insist)
                self._driver = driver
                if presence.since:
                    presence.find(looked=script is None or script.name in LOOKS)
                return answer
            except theirs.ResponseError as error:
                if script is not None and missing_script(error):
                    self._driver = driver  # an error is a whole answer
                    command = ("EVAL", script.text, *command[2:])
                    continue
                failed: BaseException = await self._weigh(driver, error, tries)
            except (Unconfirmed, *LOST) as error:
                failed = self._heed(error, tries, sent=driver is not None, insist=insist)
            finally:
                presence.end(self)
                if driver is not self._driver:
                    self._server.drop(driver)
            await self._prepare_next(failed, tries, driver)

    def _taken(self) -> Any:
        """redis-py's connection, unless it is not to be used any more."""
        driver, self._driver = self._driver, None
        if driver is not None and self._version != self._server.version:
            self._server.drop(driver)
            return None
        return driver

    async def _weigh(self, driver: Any, error: theirs.ResponseError, tries: Tries) -> theirs.ResponseError:
        """What passes. Else it is refused, and so is a replica that the URL names: where a master has been, there will be one
        again.
        """
        server = self._server
        if not passing(error) or (isinstance(error, theirs.MovedError) and not server.follows):
            self._driver = driver
            raise self._refusal(error, unsure=tries.unsure) from None
        if not read_only(error) or tries.unsure or server.follows or server.clock.wrote or server.address.wake == "poll":
            return error
        await self._server.send(driver, "INFO", "replication")
        told = await self._answer(driver)
        master = None if isinstance(told, Exception) else of_replica(told)
        if master is not None:
            raise is_replica(self._server.shown, master)
        return error

    async def _ask_as_write(self, driver: Any, command: tuple[Text, ...], within: float | None) -> Any:
        """In a transaction with a script, which a pause of writes holds back whole."""
        for each in (("MULTI",), ("EVAL", "return 0", "0"), command, ("EXEC",)):
            await self._server.send_texts(driver, each)
        *queued, done = [await self._answer(driver, within) for _ in range(4)]
        for each in (*queued, *(done if isinstance(done, list) else [done])):
            if isinstance(each, Exception):
                raise each
        return done[-1]

    def _heed(self, error: BaseException, tries: Tries, *, sent: bool, insist: bool) -> BaseException:
        if refused(error) and not tries.unsure:
            raise self._refusal(error, unsure=False) from None
        if tries.unsure or (sent and not passing(error)):
            tries.has_run(insist=insist)
        return error

    async def _answer(self, driver: Any, within: float | None = None) -> Any:
        """Also an error, as a value."""
        try:
            return await self._server.answer(driver, within)
        except theirs.ResponseError as error:
            return error

    async def _prepare_next(self, failed: BaseException, tries: Tries, driver: Any) -> None:
        """Before the next try: learn where to go, and wait. Raises when there is none."""
        if isinstance(failed, Unconfirmed):
            if not await self._server.has_moved():
                raise self._unconfirmed(failed) from None
            return
        if isinstance(failed, (theirs.TimeoutError, TimeoutError)):
            self._server.outdate()  # else each connection that went silent would have its own timeout
        redirected = self._server.learn(driver, failed)
        if not redirected:
            self._server.presence.lose(self._excuse(failed))
        pause = tries.pause(failed, redirected=redirected)
        if pause is None or (not tries.unsure and self._server.is_absent(failed)):
            raise self._given_up(failed, tries.unsure)
        await AsyncSignal().wait(pause)

    def _excuse(self, failed: BaseException) -> Excuse | None:
        if not (isinstance(failed, theirs.ResponseError) or passing(failed) or refused(failed)):
            return None
        return Excuse(self._server.told(failed), refuses_changes(failed), about_a_slot(failed))

    def _refusal(self, error: BaseException, *, unsure: bool) -> BaseException:
        if refused(error):  # so it is left out while others let us in
            self._server.presence.lose(self._excuse(error))
        told = translated(error, self._server.shown, self._server.secrets, self._server.place)
        if unsure and not isinstance(told, (Unpinned, OtherSpread)) and not (isinstance(told, TooOld) and told.sure):
            return self._given_up(error, unsure)
        return told

    async def _confirm(
        self, driver: Any, confirmation: Confirmation, meta: str, answer: Any, tries: Tries, *, insist: bool
    ) -> None:
        """Wait until enough have the latest write: also that of an operation which an earlier try of it had done."""
        tries.has_run(insist=insist)  # whatever comes now
        if confirmation.at_once and await self._has_it_at_once(driver):
            return
        for write in touch(meta):
            await self._server.send(driver, *write)
            await self._server.send(driver, *confirmation.wait)
            written, had = await driver.read_response(), await self._answer(driver)
            if written:
                break
        missing = confirmation.missing(had)
        if missing:
            raise Unconfirmed(missing, answer=answer)

    async def _has_it_at_once(self, driver: Any) -> bool:
        """Whether the server has its writes on the disk before it answers: it may be another one now, or set up anew."""
        sure, until = self._at_once
        if sure is not driver or time.monotonic() > until:
            for command in AT_ONCE:
                await self._server.send(driver, *command)
            if not syncs_at_once(await self._answer(driver), await self._answer(driver)):
                return False
            self._at_once = driver, time.monotonic() + SURE
        return True

    def _unconfirmed(self, error: Unconfirmed) -> Unconfirmed:
        given_up = self.lane, self.number
        self.lane, self.number = lane(), 0  # as with an operation that was given up
        sentence = f"{self._server.place} has done it, but did not confirm it: {error.sentence}. A failover may undo it."
        return Unconfirmed(sentence, *given_up, error.answer)

    def _given_up(self, error: BaseException, unsure: bool) -> Unanswered | Unavailable:
        why = self._server.told(error)
        if not unsure:
            return Unavailable(kept_from(self._server.place, self._server.shown, error, why))
        given_up = self.lane, self.number
        self.lane, self.number = lane(), 0  # nothing follows on this lane, so the server keeps what it knows of the operation
        return Unanswered(f"{self._server.place} did not answer in time: {why}. {UNSURE}", *given_up)

    async def close(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            self._server.drop(driver)


class AsyncConnections:
    """The connections of one engine to one server: a free one for each call, or a new one."""

    def __init__(self, server: AsyncServer, asked: Confirmation | None = None) -> None:
        self.server: AsyncServer = server
        self._free = server.free
        self._made: weakref.WeakSet[AsyncConnection] = weakref.WeakSet()  # weak: a signal handler's error may lose one
        self._counting = threading.RLock()  # reentrant, as a signal handler may need a connection too
        self._closed = False
        self.confirmation: Confirmation | None = asked  # after every write
        self.short: bool = False  # a write was not confirmed in time, and none has been since
        self.asking: bool = False  # whether writes are confirmed again
        self.checked: bool = False  # whether it is known that the server keeps what it takes, and how that is asked
        self.aside: AsyncAside = AsyncAside()

    async def take(self) -> AsyncConnection:
        if self._free.empty():
            with self._counting:
                if len(self._made) < MOST:
                    connection = AsyncConnection(self.server)
                    self._made.add(connection)
                    return connection
        free: AsyncConnection = await self._free.get()
        return free

    async def give(self, connection: AsyncConnection) -> None:
        try:
            if self._closed:
                await connection.close()
        finally:
            self._free.put_nowait(connection)

    def abandon(self) -> None:
        """Close without the event loop, which is closed."""
        self._closed = True
        self.server.sever()

    async def close(self) -> None:
        self._closed = True
        await self.aside.close()
        for _ in range(self._free.qsize()):
            await self.give(await self._free.get())


def _checked(script: Script | None, answer: Any) -> Any:
    """Every script answers a list that begins with the time. All else is not from our server, or not to our command."""
    if script is not None and not (
        isinstance(answer, list) and answer and isinstance(answer[0], bytes) and answer[0].isdigit()
    ):
        raise theirs.InvalidResponse("the answer is not one of bide's scripts")
    return answer
