"""Stands between an engine and its server, and loses what it is told to lose."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Literal
from unittest.mock import patch

from bide.engines.redis.aio import connections as aio_connections
from bide.engines.redis.failures import Tries
from bide.engines.redis.sync import connections as sync_connections

HOST = "127.0.0.1"
HASTE = 0.3  # seconds
What = Literal["pass", "lose request", "lose answer", "hold request", "hold answer"]


class Proxy:
    """`what` is done with each script that comes: only scripts can act, all else passes.

    `lose request` ends the connection before the server heard of it, `lose answer` when it has answered. `hold request`
    keeps what was sent for `deliver`, and ends the connection. `hold answer` is silent until `go_on`. Bytes are said to
    the client in the server's place.

    A connection goes silent for ever when a command of `forgotten` comes: the server gets it, and its answers are lost.
    """

    def __init__(self, port: int) -> None:
        self._server_port = port
        self.port: int = 0
        self.what: What | bytes = "pass"
        self.once: What | bytes | None = None  # done with the next one only
        self.scripts: int = 0
        self.held: list[bytes] = []
        self.forgotten: set[bytes] = set()
        self.asked: asyncio.Event = asyncio.Event()  # the server has answered, and nobody was told
        self._go_on = asyncio.Event()
        self._open: list[tuple[asyncio.StreamWriter, asyncio.StreamWriter]] = []
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def patient_url(self) -> str:
        return f"redis://{HOST}:{self.port}/0?timeout=30"

    def go_on(self) -> None:
        self._go_on.set()

    async def deliver(self) -> list[bytes]:
        """What was held back arrives now; gives the server's answers."""
        answers: list[bytes] = []
        for request in self.held:
            reader, writer = await asyncio.open_connection(HOST, self._server_port)
            writer.write(request)
            answers.append(await reply_of(reader))
            await _closed(writer)
        self.held.clear()
        return answers

    def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(HOST, self._server_port)
        self._open.append((writer, back))
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while await self._step(reader, writer, there, back):
                pass
        await _closed(writer, back)

    async def end(self) -> None:
        """Close all connections, and wait until who serves them has seen it."""
        self.go_on()
        while self._serving:
            for pair in self._open:
                await _closed(*pair)
            await asyncio.wait(self._serving, timeout=0.1)  # one may only be about to open its connection

    async def _step(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        there: asyncio.StreamReader,
        back: asyncio.StreamWriter,
    ) -> bool:
        request = await reply_of(reader)  # a request has the form of an answer that is an array
        what = self._chosen(request)
        if isinstance(what, bytes):
            writer.write(what)
            return True
        if what == "hold request":
            self.held.append(request)
        if what in ("hold request", "lose request"):
            return False
        back.write(request)
        if any(command in request[:40] for command in self.forgotten):
            self.asked.set()
            await self._go_on.wait()
            return False
        answer = await reply_of(there)
        self.asked.set()
        if what == "lose answer":
            return False
        if what == "hold answer":
            await self._go_on.wait()
        writer.write(answer)
        await writer.drain()
        return True

    def _chosen(self, request: bytes) -> What | bytes:
        if b"EVAL" not in request[:40]:
            return "pass"
        self.scripts += 1
        what, self.once = self.once or self.what, None
        return what


async def _closed(*writers: asyncio.StreamWriter) -> None:
    for writer in writers:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def reply_of(reader: asyncio.StreamReader) -> bytes:
    """One answer of the protocol, whole."""
    head = await reader.readuntil(b"\r\n")
    kind, count = head[:1], head[1:-2]
    if kind == b"$" and count != b"-1":
        return head + await reader.readexactly(int(count) + 2)
    if kind == b"*" and count != b"-1":
        return head + b"".join([await reply_of(reader) for _ in range(int(count))])
    return head


@contextmanager
def hasty(proxy: Proxy) -> Iterator[None]:
    """While the proxy loses what comes, engines try again for a moment only; and for as long as usual when all passes."""

    class Hasty(Tries):
        def __init__(self, usual: float, patience: float | None) -> None:
            super().__init__(usual if proxy.what == "pass" else min(usual, HASTE), patience)

    with patch.object(aio_connections, "Tries", Hasty), patch.object(sync_connections, "Tries", Hasty):
        yield


@asynccontextmanager
async def proxied(port: int) -> AsyncIterator[Proxy]:
    proxy = Proxy(port)
    server = await asyncio.start_server(proxy.serve, HOST, 0, limit=2**24)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        await proxy.end()
