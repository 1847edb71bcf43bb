"""One connection that waits: asks something, and sees whether the answer has come, without giving up on it.

The two colours differ in how they wait, and so each is written out.
"""

import asyncio
import math
import selectors
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from bide.engines.redis.server import AsyncServer, Server


class Listener:
    """For threads."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._connection: Any = None
        self._number = 0

    def open(self, *first: Any) -> int:
        """The number that the server knows this connection by; a new one begins with a command of its own."""
        if self._connection is None:
            self._connection = self._server.new_connection()
            self._connection.connect()
            self.ask("CLIENT", "ID")
            self._number = self.answer()
            if first:
                self.ask(*first)
                self.answer()
        return self._number

    def ask(self, *command: Any) -> None:
        self._connection.send_command(*command, check_health=False)

    @classmethod
    def hear(cls, listeners: "Sequence[Listener]", timeout: float) -> "list[Listener]":
        """Those that have an answer, once one of them has, or after so many seconds."""
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
        self._number = 0
        self._answer: asyncio.Task[Any] | None = None

    async def open(self, *first: Any) -> int:
        """The number that the server knows this connection by; a new one begins with a command of its own."""
        if self._connection is None:
            self._connection = self._server.new_connection()
            with _heeding_cancellation():
                await self._connection.connect()
            await self.ask("CLIENT", "ID")
            self._number = await self.answer()
            if first:
                await self.ask(*first)
                await self.answer()
        return self._number

    async def ask(self, *command: Any) -> None:
        with _heeding_cancellation():
            await self._connection.send_command(*command, check_health=False)

    @classmethod
    async def hear(cls, listeners: "Sequence[AsyncListener]", timeout: float) -> "list[AsyncListener]":
        """Those that have an answer, once one of them has, or after so many seconds."""
        answers: dict[asyncio.Task[Any], AsyncListener] = {}
        for each in listeners:
            if each._answer is None:
                each._answer = asyncio.ensure_future(each._connection.read_response(timeout=math.inf))
                each._answer.add_done_callback(_seen)
            answers[each._answer] = each
        done, _ = await asyncio.wait(answers, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return list(map(answers.__getitem__, done))

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
            await self._server.abandon(connection)


@contextmanager
def _heeding_cancellation() -> Iterator[None]:
    """Around what ends in asyncio.wait_for. Before Python 3.12 that forgets a cancellation that comes in the moment in which it
    has its answer, and a worker that wants to claim would go on sleeping.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task is not None else 0
    yield
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


def _seen(answer: "asyncio.Task[Any]") -> None:
    """Whoever has stopped waiting need not hear how it ended."""
    if not answer.cancelled():
        answer.exception()
