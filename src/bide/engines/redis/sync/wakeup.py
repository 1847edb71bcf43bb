# Generated from ../aio/wakeup.py by tools/unasync.py; change that file instead.
"""Sleeping until somebody pushes a token for one of the topics, or time is up.

The server looks at its sleepers' time limits ten times a second only: where it matters, the limit is our own. Where the
server can't block (wake=poll) the lists are looked at four times a second; with wake=expiry the expiry of a key is
listened for.
"""

import time
from collections.abc import Sequence
from typing import TypeVar

import redis.exceptions as theirs

from bide.engines.redis.failures import LOST, translated
from bide.engines.redis.listener import Listener
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.server import Server
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


class Wakeup:
    def __init__(self, namespace: Namespace, shards: Sequence[Shard]) -> None:
        self._namespace = namespace
        self._shards = shards
        self._server = Server(namespace.address)
        self._free: list[Listener] = []
        self._blocked: set[int] = set()
        self._closed = False

    def wait(self, topics: Sequence[str], timeout: float, *, sharp: bool) -> None:
        """`sharp`: to the millisecond; otherwise as the server sees fit."""
        if timeout < SHORT:
            Signal().wait(max(0.0, timeout))
            return
        end = time.monotonic() + timeout
        how = self._namespace.address.wake
        if how == "poll":
            self._poll(topics, end)
            return
        try:
            listener = self._free.pop()
        except IndexError:
            listener = Listener(self._server)
        try:
            if how == "list":
                self._listen(listener, topics, end, sharp)
            else:
                self._expect(listener, end)
        except theirs.NoPermissionError as error:
            listener.close()
            raise translated(error, self._server.shown, self._server.secrets) from None
        except (*LOST, theirs.ResponseError, EngineError):
            listener.close()
            Signal().wait(max(0.0, min(end - time.monotonic(), AGAIN)))
        except BaseException:
            listener.close()
            raise
        else:
            if self._closed or how == "expiry":  # one that goes on listening would gather what nobody reads
                listener.close()
            else:
                self._free.append(listener)

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

    def _listen(self, listener: Listener, topics: Sequence[str], end: float, sharp: bool) -> None:
        """Blocked on the wake lists."""
        lists = [f"{shard.prefix}w:{topic}" for shard in self._shards for topic in topics]
        number = listener.open()
        self._blocked.add(number)
        try:
            left = max(SHORT, end - time.monotonic())
            listener.ask("BLPOP", *lists, f"{left + BEYOND if sharp else left:.3f}")
            limit = left if sharp else left + LATE
            while not listener.hears(SHORT if self._closed else limit):
                if self._unblock(number):
                    break
                limit = SHORT  # it has overtaken what it is to end
            listener.answer()
        finally:
            self._blocked.discard(number)

    def _expect(self, listener: Listener, end: float) -> None:
        """Subscribed to expiries, of which our shards' alarm keys concern us."""
        alarms = {f"{shard.prefix}alarm".encode() for shard in self._shards}
        listener.open("SUBSCRIBE", f"__keyevent@{self._namespace.address.db}__:expired")
        while not self._closed and (left := end - time.monotonic()) > 0:
            if listener.hears(min(left, SLICE)):
                told = listener.answer()
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
