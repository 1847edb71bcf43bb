"""One server: how connections to it are made, used and ended. redis-py does this differently, sync and async.

A connection is in use from when it is taken until it has given its whole answer. When an error, a cancellation or a signal
handler ends the use earlier, an answer may still be on its way, or the login is not complete: such a connection is dropped.
A listener is a connection that waits: it sends a command, and checks for the answer as often as its user likes.
"""

import asyncio
import contextlib
import math
import selectors
import time
import weakref
from collections.abc import Iterator, Sequence
from queue import SimpleQueue
from typing import Any

import msgspec
import redis.exceptions as theirs
from hiredis import pack_command

from bide.engines.redis.client import Endpoint, async_pool, redacted, sync_pool
from bide.engines.redis.failures import WHERE, absent
from bide.engines.redis.namespace import ServerClock
from bide.engines.redis.presence import HASTE, Presence
from bide.engines.redis.protocol import Text
from bide.engines.redis.topology import ServerPlace
from bide.punctual import alarm_at

FULL = 64 * 1024  # bytes: what asyncio buffers before it has a sender wait
LATE = "no answer"
TIMEOUTS = 3  # a command is repeated for so many times the timeout of one


def hasty(address: Endpoint, seconds: float = HASTE) -> Endpoint:
    short = {"timeout": min(address.timeout, seconds), "connect_timeout": min(address.connect_timeout, seconds)}
    return msgspec.structs.replace(address, **short)


class _Server:
    def __init__(self, address: Endpoint, clock: ServerClock, pool: Any) -> None:
        self.address: Endpoint = address
        self.clock: ServerClock = clock
        self.shown: str = address.shown
        self.secrets: list[str] = address.secrets
        self.retry_for: float = TIMEOUTS * address.timeout
        self.version: int = 0  # rises when connections that were made before are not to be used any more
        self.follows: bool = False  # whether it goes where a node of a Cluster says that the keys are
        self.presence: Presence = Presence(lambda: self.place, self.retry_for)
        self.look_at: float = math.inf  # monotonic: when to ask again whether another one has taken its place
        self._pool = pool

    @property
    def place(self) -> str:
        """Which server it is, for people."""
        return self.shown

    def new_connection(self, place: ServerPlace | None = None) -> Any:
        """`place`: for one of several servers."""
        connection = self._pool.make_connection()
        if place is not None:
            connection.host, connection.port = place
        return connection

    def is_absent(self, error: BaseException) -> bool:
        """Whether nothing is there to connect to, and nothing was since the queue was made: so it makes no sense to wait."""
        return not self.clock.known and absent(error)

    def outdate(self) -> None:
        """Use no connection that was made before: they lead to a server that was replaced, or may all be silent for ever."""
        self.version += 1

    def learn(self, connection: Any, error: BaseException) -> bool:
        """Hear of an error of a connection, or of having none. Whether it told where to go instead."""
        return False

    def told(self, error: BaseException) -> str:
        """The error's text, without secrets and without the place in a script."""
        return redacted(WHERE.sub("", str(error)) or type(error).__name__, self.secrets).rstrip(". ")


class Server(_Server):
    def __init__(self, address: Endpoint, clock: ServerClock) -> None:
        super().__init__(address, clock, sync_pool(address))
        # a signal handler may interrupt this queue or use it: it is in C, and has no lock that would stay locked
        self.free: SimpleQueue[Any] = SimpleQueue()

    def connect(self, place: ServerPlace | None = None, within: float | None = None) -> Any:
        """A connection that is logged in and in its database. `within`: seconds for each step of that, if fewer than usual."""
        connection = self.new_connection(place)
        try:
            with _in_haste(connection, within):
                connection.connect()
                if within is not None:
                    connection._sock.settimeout(self.address.timeout)
        except BaseException as error:
            self.drop(connection)
            if said := _hidden_by(error):
                raise said from None
            raise
        return connection

    def send(self, connection: Any, *command: Any) -> None:
        self.send_texts(connection, texts(command))

    def send_texts(self, connection: Any, command: tuple[Text, ...]) -> None:
        connection.send_packed_command([pack_command(command)], check_health=False)  # type: ignore[arg-type]

    def answer(self, connection: Any, within: float | None = None) -> Any:
        """The answer to a command that was sent. `within`: seconds until it begins, if fewer than usual."""
        if within is not None and not connection.can_read(timeout=within):
            raise TimeoutError(LATE)
        return connection.read_response()

    def drop(self, connection: Any) -> None:
        connection.disconnect()

    def sever(self) -> None:
        """Only async connections need this."""

    def has_moved(self) -> bool:
        """Ask whether another server has taken its place."""
        return False

    def look_again(self) -> None:
        """Ask whether another server has taken its place, when all seems well."""

    def hasty(self, seconds: float) -> "Server":
        """The same, for questions that are worth no longer wait."""
        return Server(hasty(self.address, seconds), self.clock)


class AsyncServer(_Server):
    def __init__(self, address: Endpoint, clock: ServerClock) -> None:
        super().__init__(address, clock, async_pool(address))
        self.free: asyncio.Queue[Any] = asyncio.Queue()
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()

    def new_connection(self, place: ServerPlace | None = None) -> Any:
        connection = super().new_connection(place)
        self._connections.add(connection)
        return connection

    async def connect(self, place: ServerPlace | None = None, within: float | None = None) -> Any:
        """A connection that is logged in and in its database. `within`: seconds for each step of that, if fewer than usual."""
        connection = self.new_connection(place)
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        try:
            try:
                with _in_haste(connection, within):
                    await connection.connect()
            finally:
                _heed_cancellation(task, before)
        except BaseException as error:
            self.drop(connection)
            if said := _hidden_by(error):
                raise said from None
            raise
        return connection

    async def send(self, connection: Any, *command: Any) -> None:
        await self.send_texts(connection, texts(command))

    async def send_texts(self, connection: Any, command: tuple[Text, ...]) -> None:
        packed: Any = pack_command(command)  # type: ignore[arg-type]
        writer = connection._writer
        if writer is not None and not writer.transport.is_closing():  # what redis-py would put into a task of its own
            writer.write(packed)
            if writer.transport.get_write_buffer_size() < FULL:
                return
            packed = b""  # only wait until there is room again
        task = asyncio.current_task()
        before = 0 if task is None else task.cancelling()
        try:
            await connection.send_packed_command([packed], check_health=False)
        finally:
            _heed_cancellation(task, before)

    async def answer(self, connection: Any, within: float | None = None) -> Any:
        """The answer to a command that was sent. `within`: seconds until it comes, if fewer than usual.

        An answer that is there counts, also if the loop was blocked for all of that time.
        """
        if within is None:
            return await connection.read_response()
        answer = asyncio.Task(connection.read_response(), loop=asyncio.get_running_loop())
        answer.add_done_callback(_seen)
        try:
            await asyncio.wait({answer}, timeout=within)
            if not answer.done():
                raise TimeoutError(LATE)
            return answer.result()
        finally:
            answer.cancel()

    def drop(self, connection: Any) -> None:
        """Close at once. To close in good order would be to wait for a server that may be frozen, with TLS or a full buffer."""
        writer, connection._writer, connection._reader = connection._writer, None, None
        with contextlib.suppress(RuntimeError):  # the loop is closed
            if writer is not None:
                writer.transport.abort()

    async def has_moved(self) -> bool:
        """Ask whether another server has taken its place."""
        return False

    async def look_again(self) -> None:
        """Ask whether another server has taken its place, when all seems well."""

    def hasty(self, seconds: float) -> "AsyncServer":
        """The same, for questions that are worth no longer wait."""
        return AsyncServer(hasty(self.address, seconds), self.clock)

    def sever(self) -> None:
        """Close all connections of an event loop that is closed."""
        for connection in self._connections:
            self.drop(connection)


class Listener:
    """For threads."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection: Any = None
        self._number = self._version = 0

    def open(self, *first: Any, patience: float | None = None) -> int:
        """Connect if need be, and send the first command. Gives the number that the server knows the connection by.

        `patience`: seconds for each step of that, if fewer than usual.
        """
        if self.outdated:
            self.close()
        if self._connection is None:
            with self._server.presence.waiting(self, patience) as within:
                self._connection, self._version = self._server.connect(within=within), self._server.version
                self.ask("CLIENT", "ID")
                self._number = self._server.answer(self._connection, within)
                if first:
                    self.ask(*first)
                    self._server.answer(self._connection, within)
        return self._number

    @property
    def outdated(self) -> bool:
        """Whether nothing may come on it any more: its server was replaced, or was silent for a while."""
        return self._version != self._server.version

    def ask(self, *command: Any) -> None:
        self._server.send(self._connection, *command)

    @classmethod
    def hear(cls, listeners: "Sequence[Listener]", timeout: float) -> "list[Listener]":
        """The listeners that have an answer, once one of them has, or after `timeout` seconds."""
        if len(listeners) == 1:
            return [each for each in listeners if each._has_answer(timeout)]
        heard = [each for each in listeners if each._has_answer(0)]
        if heard or not timeout:
            return heard
        with selectors.DefaultSelector() as sockets:
            for each in listeners:
                sockets.register(each._connection._sock, selectors.EVENT_READ)
            sockets.select(timeout)
        return [each for each in listeners if each._has_answer(0)]

    def _has_answer(self, timeout: float) -> bool:
        return bool(self._connection.can_read(timeout=timeout))

    def answer(self) -> Any:
        return self._connection.read_response()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self._server.drop(connection)


class AsyncListener:
    """For event loops."""

    def __init__(self, server: AsyncServer) -> None:
        self._server = server
        self._connection: Any = None
        self._number = self._version = 0
        self._answer: asyncio.Task[Any] | None = None

    async def open(self, *first: Any, patience: float | None = None) -> int:
        """Connect if need be, and send the first command. Gives the number that the server knows the connection by.

        `patience`: seconds for each step of that, if fewer than usual.
        """
        if self.outdated:
            await self.close()
        if self._connection is None:
            with self._server.presence.waiting(self, patience) as within:
                self._connection = await self._server.connect(within=within)
                self._version = self._server.version
                await self.ask("CLIENT", "ID")
                self._number = await self._server.answer(self._connection, within)
                if first:
                    await self.ask(*first)
                    await self._server.answer(self._connection, within)
        return self._number

    @property
    def outdated(self) -> bool:
        """Whether nothing may come on it any more: its server was replaced, or was silent for a while."""
        return self._version != self._server.version

    async def ask(self, *command: Any) -> None:
        await self._server.send(self._connection, *command)

    @classmethod
    async def hear(cls, listeners: "Sequence[AsyncListener]", timeout: float) -> "list[AsyncListener]":
        """The listeners that have an answer, once one of them has, or after `timeout` seconds."""
        answers: dict[asyncio.Task[Any], AsyncListener] = {}
        for each in listeners:
            if each._answer is None:
                each._answer = asyncio.ensure_future(each._connection.read_response(timeout=math.inf))
                each._answer.add_done_callback(_seen)
            answers[each._answer] = each
        over = alarm_at(time.monotonic() + timeout)
        try:
            await asyncio.wait({*answers, over}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            over.cancel()
        return [listener for answer, listener in answers.items() if answer.done()]

    async def answer(self) -> Any:
        answer, self._answer = self._answer, None
        if answer is None:
            return await self._connection.read_response()
        done, _ = await asyncio.wait({answer}, timeout=self._server.address.timeout)
        if not done:
            self._answer = answer
            raise TimeoutError("the server did not answer")
        return answer.result()

    async def close(self) -> None:
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            self._server.drop(connection)


@contextlib.contextmanager
def _in_haste(connection: Any, within: float | None) -> Iterator[None]:
    """While it is connected and logged in, a connection waits no longer than this for anything."""
    if within is None:
        yield
        return
    usual = connection.socket_connect_timeout, connection.socket_timeout
    connection.socket_connect_timeout, connection.socket_timeout = (min(within, each) for each in usual)
    try:
        yield
    finally:
        connection.socket_connect_timeout, connection.socket_timeout = usual


def _heed_cancellation(task: "asyncio.Task[Any] | None", before: int) -> None:
    """To be called after what ends in asyncio.wait_for, with how often the task had been told to end before.

    Until Python 3.12 it loses a cancellation that comes together with its answer or its error, and the task would go on.
    """
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


def _hidden_by(error: BaseException) -> BaseException | None:
    """What the server said at login, if redis-py hides it behind a ConnectionError, as with Unix sockets in an event loop."""
    cause = error.__cause__
    return cause if isinstance(error, theirs.ConnectionError) and isinstance(cause, theirs.RedisError) else None


def texts(words: Sequence[Any]) -> tuple[Text, ...]:
    """The words of a command, numbers as text: hiredis crashes the process if a signal handler raises while it makes that."""
    if int in map(type, words):
        return tuple([str(each) if type(each) is int else each for each in words])
    return tuple(words)


def _seen(answer: "asyncio.Task[Any]") -> None:
    """Mark the error as seen: a caller that has stopped waiting does not ask for it."""
    if not answer.cancelled():
        answer.exception()
