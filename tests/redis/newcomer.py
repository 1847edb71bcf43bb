"""A program that begins while a part is away, `python -m tests.redis.newcomer URL COLOUR KEY LOCK`: how each call went."""

import json
import sys
import time

from bide.errors import BideError
from tests.redis.book import Book
from tests.redis.hands import AsyncHand, Hand, SyncHand, drive

TOPIC = "new"


async def main(hand: Hand, key: str, name: str) -> None:
    queue, lock = hand.queue, hand.queue.lock(name)
    deeds = {
        "send": lambda: queue.send(TOPIC),
        "send with a key": lambda: queue.send(TOPIC, key=key),
        "receive": lambda: queue.receive(TOPIC, limit=10, wait=1),
        "lock": lambda: hand.enter(lock),
        "unlock": lambda: hand.leave(lock),
        "stats": queue.stats,
        "close": queue.close,
    }
    for what, deed in deeds.items():
        began, error = time.monotonic(), ""
        try:
            await hand(deed)
        except BideError as failed:
            error = f"{type(failed).__name__}: {failed}"
        print(json.dumps([what, time.monotonic() - began, error]), flush=True)


if __name__ == "__main__":
    url, colour, *words = sys.argv[1:]
    if colour == "async":
        import asyncio

        asyncio.run(main(AsyncHand(url, Book()), *words))
    else:
        drive(main(SyncHand(url, Book()), *words))
