# Generated from ../aio/connections.py by tools/unasync.py; change that file instead.
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

from bide.engines.redis.failures import (
    LOST,
    TooOld,
    Unanswered,
    Unpinned,
    missing_script,
    passing,
    refused,
    translated,
)
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.script import Script, scripts
from bide.engines.redis.server import Server
from bide.errors import BideError, OutcomeUnknown, Unavailable
from bide.ids import lane
from bide.wakeable import Signal

MOST = 32  # connections that one engine has open at a time
SOON, LATER = 0.02, 1.0  # seconds between two tries, growing
TRIES = 3  # of a script that comes too late
LOOKS = ("get", "lease_ends", "leased", "scan", "stats", "sweep", "time")  # scripts that change nothing


class Connection:
    def __init__(self, server: Server) -> None:
        self._server = server
        self.retry_for: float = server.retry_for
        self._driver: Any = None  # redis-py's connection, while no command is under way
        self.lane: str = lane()
        self.number: int = 0  # of the latest operation; the server refuses lower ones

    def command(self, *args: Any) -> Any:
        """The answer to a command that may be repeated."""
        return self.run(None, (), args)

    def run(self, script: Script | None, keys: Sequence[str], args: Sequence[Any], *, retry_for: float | None = None) -> Any:
        """The answer to a script or a command. Raises Unanswered when it may or may not have run.

        It is retried until there is an answer, for `retry_for` seconds at most.
        """
        command: tuple[Any, ...] = tuple(args) if script is None else ("EVALSHA", script.sha, str(len(keys)), *keys, *args)
        end = time.monotonic() + (self.retry_for if retry_for is None else retry_for)
        pause, unsure = SOON, False  # unsure: a command was sent and not answered, so it may have acted
        while True:
            driver, self._driver = self._driver, None
            try:
                if driver is None:
                    driver = self._server.connect()
                self._server.send(driver, *command)
                answer = driver.read_response()
                if script is not None:
                    _check(answer)
                self._driver = driver
                return answer
            except theirs.ResponseError as error:
                if not passing(error):
                    self._driver = driver  # an error is a whole answer
                    if script is not None and missing_script(error):
                        command = ("EVAL", script.text, *command[2:])
                        continue
                    told = translated(error, self._server.shown, self._server.secrets)
                    if unsure and not isinstance(told, Unpinned) and not (isinstance(told, TooOld) and told.sure):
                        raise self._given_up(error, unsure) from None
                    raise told from None
                failed: BaseException = error
            except LOST as error:
                if refused(error) and not unsure:
                    raise translated(error, self._server.shown, self._server.secrets) from None
                unsure = unsure or (driver is not None and not passing(error))  # type: ignore[arg-type]
                failed = error
            finally:
                if driver is not self._driver:
                    self._server.drop(driver)
            if time.monotonic() + pause > end:
                raise self._given_up(failed, unsure)
            Signal().wait(pause)
            pause = min(LATER, 2 * pause)

    def _given_up(self, error: BaseException, unsure: bool) -> Unanswered | Unavailable:
        why = self._server.told(error)
        if not unsure:
            return Unavailable(f"{self._server.shown} can't be reached: {why}. Nothing was done; is it running, and let in?")
        given_up = self.lane, self.number
        self.lane, self.number = lane(), 0  # nothing follows on this lane, so the server keeps what it knows of the operation
        return Unanswered(f"{self._server.shown} did not answer in time: {why}. It may or may not have happened.", *given_up)

    def close(self) -> None:
        driver, self._driver = self._driver, None
        if driver is not None:
            self._server.drop(driver)


class Connections:
    """The connections of one engine to one server: a free one for each call, or a new one."""

    def __init__(self, server: Server) -> None:
        self.server: Server = server
        self._free = server.free
        self._made: weakref.WeakSet[Connection] = weakref.WeakSet()  # weak: a signal handler's error may lose one
        self._counting = threading.RLock()  # reentrant, as a signal handler may need a connection too
        self._closed = False

    def take(self) -> Connection:
        if self._free.empty():
            with self._counting:
                if len(self._made) < MOST:
                    connection = Connection(self.server)
                    self._made.add(connection)
                    return connection
        free: Connection = self._free.get()
        return free

    def give(self, connection: Connection) -> None:
        try:
            if self._closed:
                connection.close()
        finally:
            self._free.put_nowait(connection)

    def abandon(self) -> None:
        """Close without the event loop, which is closed."""
        self._closed = True
        self.server.sever()

    def close(self) -> None:
        self._closed = True
        for _ in range(self._free.qsize()):
            self.give(self._free.get())


class Calls:
    """Runs the scripts of one shard."""

    def __init__(self, number: int, namespace: Namespace, connections: Connections, first: "Calls | None" = None) -> None:
        """`first`: those of shard 0, if this is another one."""
        prefix = namespace.prefix(number)
        self._keys = (f"{prefix}meta", f"{prefix}-")
        self._shards = namespace.shards
        self._first = first
        self._connections = connections
        self._clock = connections.server.clock

    def command(self, *args: Any) -> Any:
        """The answer to a command that changes nothing."""
        connection = self._connections.take()
        try:
            return connection.command(*args)
        except Unanswered as lost:
            raise Unavailable(str(lost)) from None
        finally:
            self._connections.give(connection)

    def ask(self, verb: str, args: Sequence[Any], now: int | None) -> Any:
        """Run a script that may run more than once."""
        return self.do(verb, args, now, once=False)

    def do(self, verb: str, args: Sequence[Any], now: int | None, *, once: bool = True, salt: bytes = b"") -> Any:
        """Run a script that must act once. It runs again if it came too late, as after a long silence.

        With a salt it raises Unanswered, with the operation's number, when it may have acted.
        """
        connection, clock, lane = self._connections.take(), self._clock, ""
        try:
            for _ in range(TRIES):
                if once:
                    connection.number += 1
                    lane = connection.lane
                until = clock.until(now, connection.retry_for)
                told = (
                    "" if now is None else str(now), str(clock.known), lane, str(connection.number), salt, str(self._shards),
                    str(until), *args,
                )  # fmt: skip
                try:
                    reply = connection.run(scripts()[verb], self._keys, told)
                except TooOld as late:  # it did nothing, and told the time
                    clock.hear(late.now)
                except Unpinned:
                    self._pin(connection, now)
                else:
                    clock.hear(int(reply[0]))
                    return reply
        except Unanswered as lost:
            if salt:
                raise
            raise (Unavailable if verb in LOOKS else OutcomeUnknown)(str(lost)) from None
        finally:
            self._connections.give(connection)
        shown = self._connections.server.shown
        raise Unavailable(f"{shown} answers too late for anything to be done. Nothing was done; try again.")

    def in_passing(self, verb: str, args: Sequence[Any]) -> bool:
        """Run a script without retries; False when the server is away."""
        connection = self._connections.take()
        try:
            connection.run(scripts()[verb], self._keys, [*self._told(connection, None), *args], retry_for=0.0)
        except (BideError, Unanswered, TooOld, Unpinned):
            return False
        finally:
            self._connections.give(connection)
        return True

    def _pin(self, connection: Connection, now: int | None) -> None:
        """Store the number of shards, in shard 0 first. Clients with another number are refused from then on."""
        first = self._first
        if first is not None and first._connections is self._connections:
            first._pin(connection, now)
        elif first is not None:
            other = first._connections.take()
            try:
                first._pin(other, now)
            finally:
                first._connections.give(other)
        reply = connection.run(scripts()["pin"], self._keys, self._told(connection, now))
        self._clock.hear(int(reply[0]))

    def _told(self, connection: Connection, now: int | None) -> list[Any]:
        """The first arguments of every script, for one that may run more than once."""
        until = self._clock.until(now, connection.retry_for)
        return ["" if now is None else now, self._clock.known, "", 0, b"", self._shards, until]


def _check(answer: object) -> None:
    """Every script answers a list that begins with the time. All else is not from our server, or not to our command."""
    if not (isinstance(answer, list) and answer and isinstance(answer[0], bytes) and answer[0].isdigit()):
        raise theirs.InvalidResponse("the answer is not one of bide's scripts")
