# Generated from ../aio/ears.py by tools/unasync.py; change that file instead.
"""Sleeping until somebody pushes a token for one of the topics, or time is up.

The server looks at its sleepers' time limits ten times a second only: where it matters, the limit is our own. Where the
server can't block (wake=poll) the lists are looked at four times a second; with wake=expiry the expiry of a key is
listened for.
"""

import time
from collections.abc import Sequence
from typing import TypeVar

import redis.exceptions as theirs

from bide.engines.redis.ear import Ear
from bide.engines.redis.failures import LOST, translated
from bide.engines.redis.server import Server
from bide.engines.redis.space import Space
from bide.engines.redis.sync.shard import Shard
from bide.errors import EngineError
from bide.signals import Signal

T = TypeVar("T")
SHORT = 0.002  # seconds: not worth a call
BEYOND = 2.0  # seconds after ours that the server's limit ends, should we not be there to end it
LATE = 0.5  # seconds that the server may take to see that its limit is over
AGAIN = 0.5  # seconds: a sleeper whose server is gone sleeps so long, and is then woken to see for itself
POLL = 0.25  # seconds between two looks
SLICE = 1.0  # seconds after which a listener sees that the engine was closed


class Ears:
    def __init__(self, space: Space, shards: Sequence[Shard]) -> None:
        self._space = space
        self._shards = shards
        self._server = Server(space.address)
        self._free: list[Ear] = []
        self._blocked: set[int] = set()
        self._closed = False

    def wait(self, topics: Sequence[str], timeout: float, *, sharp: bool) -> None:
        """`sharp`: to the millisecond; otherwise as the server sees fit."""
        if timeout < SHORT:
            Signal().wait(max(0.0, timeout))
            return
        end = time.monotonic() + timeout
        how = self._space.address.wake
        if how == "poll":
            self._poll(topics, end)
            return
        try:
            ear = self._free.pop()
        except IndexError:
            ear = Ear(self._server)
        try:
            if how == "list":
                self._listen(ear, topics, end, sharp)
            else:
                self._expect(ear, end)
        except theirs.NoPermissionError as error:
            ear.close()
            raise translated(error, self._server.shown, self._server.secrets) from None
        except (*LOST, theirs.ResponseError, EngineError):
            ear.close()
            Signal().wait(max(0.0, min(end - time.monotonic(), AGAIN)))
        except BaseException:
            ear.close()
            raise
        else:
            if self._closed or how == "expiry":  # one that goes on listening would gather what nobody reads
                ear.close()
            else:
                self._free.append(ear)

    def abandon(self) -> None:
        """Close without the event loop, which is closed."""
        self._server.sever()

    def close(self) -> None:
        self._closed = True
        for number in list(self._blocked):
            try:
                self._unblock(number)
            except EngineError:
                break  # the server is away, and sleepers will see that
        while self._free:
            self._free.pop().close()

    def _listen(self, ear: Ear, topics: Sequence[str], end: float, sharp: bool) -> None:
        """Blocked on the wake lists."""
        lists = [f"{shard.prefix}w:{topic}" for shard in self._shards for topic in topics]
        number = ear.open()
        self._blocked.add(number)
        try:
            left = max(SHORT, end - time.monotonic())
            ear.ask("BLPOP", *lists, f"{left + BEYOND if sharp else left:.3f}")
            patience = left if sharp else left + LATE
            while not ear.hears(SHORT if self._closed else patience):
                if self._unblock(number):
                    break
                patience = SHORT  # it has overtaken what it is to end
            ear.answer()
        finally:
            self._blocked.discard(number)

    def _expect(self, ear: Ear, end: float) -> None:
        """Subscribed to expiries, of which our shards' alarm keys concern us."""
        alarms = {f"{shard.prefix}alarm".encode() for shard in self._shards}
        ear.open("SUBSCRIBE", f"__keyevent@{self._space.address.db}__:expired")
        while not self._closed and (left := end - time.monotonic()) > 0:
            if ear.hears(min(left, SLICE)):
                told = ear.answer()
                if isinstance(told, list) and told[-1] in alarms:
                    return

    def _poll(self, topics: Sequence[str], end: float) -> None:
        while not self._closed:
            try:
                for shard in self._shards:
                    if shard.hear(topics):
                        return
            except EngineError:
                Signal().wait(max(0.0, min(end - time.monotonic(), AGAIN)))
                return
            left = end - time.monotonic()
            if left <= 0:
                return
            Signal().wait(min(left, POLL))

    def _unblock(self, number: int) -> bool:
        """False when it was not blocked, or not yet."""
        return bool(self._shards[0].calls.command("CLIENT", "UNBLOCK", number))
