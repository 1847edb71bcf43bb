"""Room for so many connections at a time. Ctrl-C may end a call at any instant, and no place is lost by that."""

import asyncio
from itertools import islice
from queue import SimpleQueue


class Room:
    """For threads. A place changes hands in one step of C, in which no signal handler runs."""

    def __init__(self, places: int) -> None:
        self.free: SimpleQueue[int] = SimpleQueue()
        for place in range(places):
            self.free.put_nowait(place)

    def take(self, taken: list[int]) -> None:
        """Wait for a place, and move it into the list. The caller then puts it back into `free`, whatever happens."""
        taken.extend(islice(iter(self.free.get, None), 1))


class AsyncRoom:
    """For the event loop."""

    def __init__(self, places: int) -> None:
        self.free: asyncio.Queue[int] = asyncio.Queue()
        for place in range(places):
            self.free.put_nowait(place)

    async def take(self, taken: list[int]) -> None:
        taken.append(await self.free.get())
