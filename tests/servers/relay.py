"""Carries what the servers of a group say to each other, until they are cut off. A program, which `network.py` runs.

It reads one command a line and answers `ok` or what went wrong:

    listen ADDRESS PORT TARGET    take connections there, and carry them to the port TARGET of 127.0.0.1
    side ADDRESS NUMBER           the server at this address is on this side now; all begin on side 0
    silence ADDRESS               what clients and this server send each other is lost from now on, or no more, by turns

A server calls from its own address, so the relay knows who speaks with whom. Between two sides all is silent: a connection
stays open, or is taken, and what is sent waits for a common side. Who calls from elsewhere is a client, and passes cuts.
A silence is for clients only. Their connections that were there, or were made, while it lasted stay silent after it.
"""

import asyncio
import sys
from collections import Counter
from contextlib import suppress

HOST = "127.0.0.1"
AT_ONCE = 2**16  # bytes


class Relay:
    def __init__(self) -> None:
        self._sides: dict[str, int] = {}
        self._moved = asyncio.Event()
        self._silences = Counter[str]()  # of each server: how often one began or ended
        self._left: list[asyncio.StreamWriter] = []  # of connections whose end is not told

    async def obey(self, command: str, address: str, *numbers: str) -> None:
        if command == "side":
            self._sides[address] = int(numbers[0])
            self._moved.set()
            self._moved = asyncio.Event()
            return
        if command == "silence":
            self._silences[address] += 1
            return
        port, target = map(int, numbers)

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._serve(address, target, reader, writer)

        self._sides.setdefault(address, 0)
        await asyncio.start_server(serve, address, port)

    async def _serve(self, called: str, target: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        caller: str = (writer.get_extra_info("peername") or ("",))[0]
        await self._on_one_side(caller, called)
        try:
            there, back = await asyncio.open_connection(HOST, target)
        except OSError:
            writer.transport.abort()
            return
        began = self._silences[called]

        def is_silent() -> bool:
            return caller not in self._sides and (self._silences[called] > began or began % 2 == 1)

        async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while data := await reader.read(AT_ONCE):
                    await self._on_one_side(caller, called)
                    if not is_silent():
                        writer.write(data)  # at once: nothing passes after a cut was confirmed
                        await writer.drain()
            await self._on_one_side(caller, called)  # nor does the end of a connection
            if is_silent():
                self._left.append(writer)
            else:
                writer.close()

        await asyncio.gather(carry(reader, back), carry(there, writer))

    async def _on_one_side(self, caller: str, called: str) -> None:
        while caller in self._sides and self._sides[caller] != self._sides[called]:
            await self._moved.wait()


async def main() -> None:
    relay, commands = Relay(), asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin)
    while line := await commands.readline():  # and when nobody is there to give commands, it ends
        try:
            await relay.obey(*line.decode().split())
        except OSError as error:
            print(error, flush=True)
        else:
            print("ok", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
