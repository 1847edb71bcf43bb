"""Sends what the driver writes in one turn of the event loop at once: it writes each frame by itself."""

import asyncio


class GatheringWriter:
    """In the place of a StreamWriter: all of it that the driver uses."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._beneath = writer
        self._parts: list[bytes] = []
        self._loop = asyncio.get_running_loop()

    @property
    def transport(self) -> asyncio.WriteTransport:
        return self._beneath.transport

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)

    async def drain(self) -> None:
        self._flush()
        await self._beneath.drain()

    def can_write_eof(self) -> bool:
        return self._beneath.can_write_eof()

    def write_eof(self) -> None:
        self._flush()
        self._beneath.write_eof()

    def close(self) -> None:
        self._flush()
        self._beneath.close()

    def is_closing(self) -> bool:
        return self._beneath.is_closing()

    async def wait_closed(self) -> None:
        await self._beneath.wait_closed()

    def _flush(self) -> None:
        if self._parts:
            parts, self._parts = self._parts, []
            if self._beneath.is_closing():  # the connection was lost meanwhile, which its reader tells
                return
            self._beneath.write(b"".join(parts))
