# Generated from ../aio/wakeup.py by tools/unasync.py; change that file instead.
"""How a receiver sleeps until there may be a message for it: one strategy for each value of the URL's option wake=.

The server checks the timeouts of blocked clients ten times a second only. Where milliseconds matter, the timeout is ours.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import redis.exceptions as theirs

from bide.engines.base import SWEEP
from bide.engines.redis.client import Endpoint, Wake
from bide.engines.redis.failures import BRIEF, LOST, lacking, translated
from bide.engines.redis.presence import HASTE
from bide.engines.redis.server import Listener
from bide.engines.redis.sync.shard import Shard
from bide.engines.redis.sync.shards import Shards
from bide.errors import EngineError
from bide.wakeable import Signal

SHORT = 0.002  # seconds: not worth a call
BEYOND = 2.0  # seconds after our timeout that the server's ends, in case we are gone
LATE = 0.5  # seconds that the server may take to notice its timeout
AGAIN = 0.5  # seconds of sleep when the server is away, before the caller tries again
POLL = 0.25  # seconds between two looks
SLICE = 1.0  # seconds after which a listener sees that the engine was closed


class Wakeup(ABC):
    def __init__(self, address: Endpoint, shards: Shards) -> None:
        self._address = address
        self._shards = shards
        self._closed = False
        self._failed = False  # the last sleep

    def wait(self, topics: Sequence[str], timeout: float, *, sharp: bool) -> bool:
        """Whether a token may have ended it. `sharp`: the timeout is exact to the millisecond; otherwise the server ends it."""
        if timeout < SHORT:
            Listener.hear([], max(0.0, timeout))
            return False
        end = time.monotonic() + timeout
        try:
            woken = self._sleep(topics, end, sharp)
            self._failed = False
            return woken
        except (*LOST, theirs.ResponseError, EngineError) as error:
            if isinstance(error, theirs.NoPermissionError) or lacking(error):
                raise translated(error, self._address.shown, self._address.secrets) from None
            failed, self._failed = self._failed, True
            if failed or self._shards.only is not None:  # else the shards that answer are asked at once
                Signal().wait(max(0.0, min(end - time.monotonic(), AGAIN)))
            return True

    def _sweep(self, topics: Sequence[str]) -> bool:
        """Whether there is something to do that nothing told of: the claim of a lost token, or upkeep."""
        found, shards = False, self._shards.live
        for shard in shards:
            found = found or (not self._closed and not shard.is_away() and shard.sweep(topics))
        return found or self._shards.live is not shards  # others may have something

    def _present(self) -> Sequence[Shard]:
        """The shards that answer, as far as is known; all if none does."""
        return [shard for shard in self._shards if not shard.silent] or self._shards.live

    @property
    def _patience(self) -> float | None:
        """For a server, if others may answer."""
        return BRIEF if self._shards.only is None else None

    def prepare(self) -> bool:
        """Tell the shards what is needed to be woken. Whether one had not been told."""
        return False

    @abstractmethod
    def _sleep(self, topics: Sequence[str], end: float, sharp: bool) -> bool:
        """Sleep until `end`, monotonic, or until there may be a message, and give whether a token was taken or may be left.

        A sweep at times finds what no token told of. Closing ends it soon.
        """

    def close(self) -> None:
        """Wake all sleepers."""
        self._closed = True


class BlockingWakeup(Wakeup):
    """wake=list: blocked on the wake lists that tokens are pushed to, by one listener a shard."""

    def __init__(self, address: Endpoint, shards: Shards) -> None:
        super().__init__(address, shards)
        self._free: list[Listeners] = []
        self._blocked: set[tuple[Shard, int, Listener]] = set()

    def _sleep(self, topics: Sequence[str], end: float, sharp: bool) -> bool:
        listeners, present = self._free.pop() if self._free else {}, self._present()
        for gone in listeners.keys() - set(self._shards):
            listeners.pop(gone).close()
        for shard in present:
            if shard not in listeners:
                listeners[shard] = Listener(shard.connections.server)
        if len(present) < len(self._shards):  # others are asked when they are back
            end = min(end, time.monotonic() + AGAIN)
        try:
            woken = self._block({shard: listeners[shard] for shard in present}, topics, end, sharp)
        except BaseException:
            self._drop(listeners)
            raise
        if self._closed:
            self._drop(listeners)
        else:
            self._free.append(listeners)
        return woken

    def close(self) -> None:
        super().close()
        away = set()
        for shard, number, listener in list(self._blocked):
            try:
                if shard.connections not in away and not listener.outdated:
                    shard.unblock(number)
            except EngineError:
                away.add(shard.connections)  # its sleepers notice that as well
        while self._free:
            self._drop(self._free.pop())

    def _block(self, chosen: "Listeners", topics: Sequence[str], end: float, sharp: bool) -> bool:
        blocked: list[tuple[Shard, int, Listener]] = []
        listeners = list(chosen.values())
        try:
            for shard, listener in chosen.items():
                blocked.append((shard, listener.open(patience=self._patience), listener))
                self._blocked.add(blocked[-1])
                left = max(SHORT, end - time.monotonic())
                lists = map(f"{shard.prefix}w:".__add__, topics)
                listener.ask("BLPOP", *lists, f"{left + BEYOND if sharp else left:.3f}")
            heard = self._hear(listeners, topics, end if sharp else end + LATE)
            over = not sharp and time.monotonic() > end
            for shard, number, listener in blocked:
                if over and listener not in heard:  # the server ends it about now
                    heard += Listener.hear([listener], SHORT)
                if listener not in heard:
                    self._unblock(shard, number, listener)
            told = [listener.answer() for listener in listeners]
        finally:
            self._blocked.difference_update(blocked)
        return any(each is not None for each in told)

    @staticmethod
    def _unblock(shard: Shard, number: int, listener: Listener) -> None:
        """End its BLPOP. Raises when there is no answer soon: a firewall may have forgotten a connection that was idle."""
        pause, give_up = SHORT, time.monotonic() + HASTE
        _check_place([listener])  # another server may know somebody else by this number
        while not shard.unblock(number):  # it has answered, or UNBLOCK overtook the BLPOP
            if Listener.hear([listener], pause):
                return
            _check_place([listener])
            if time.monotonic() > give_up:
                raise ConnectionResetError("the answer was lost")
            pause *= 2
        if not Listener.hear([listener], HASTE):
            raise ConnectionResetError("the answer was lost")

    def _hear(self, listeners: Sequence[Listener], topics: Sequence[str], end: float) -> list[Listener]:
        """The listeners that have an answer, or none at `end` or after a sweep that has found something."""
        while True:
            left = max(SHORT, end - time.monotonic())
            heard = Listener.hear(listeners, SHORT if self._closed else min(left, SWEEP))
            if heard or self._closed or left <= SWEEP or self._sweep(topics):
                return heard
            _check_place(listeners)

    @staticmethod
    def _drop(listeners: "Listeners") -> None:
        for listener in listeners.values():
            listener.close()


class PollingWakeup(Wakeup):
    """wake=poll, for servers without blocking commands: checks the lists four times a second."""

    def _sleep(self, topics: Sequence[str], end: float, sharp: bool) -> bool:
        swept = time.monotonic()
        while not self._closed:
            for shard in self._present():
                if shard.hear(topics):
                    return True
            now = time.monotonic()
            if now >= end:
                break
            if now > swept + SWEEP:
                swept = now
                if self._sweep(topics):
                    break
            Signal().wait(min(end - now, POLL))
        return False


class ExpiryWakeup(Wakeup):
    """wake=expiry: subscribed to expired keys, waiting for an alarm key of our shards. One listener a server."""

    def __init__(self, address: Endpoint, shards: Shards) -> None:
        super().__init__(address, shards)
        self._told: set[Shard] = set()

    def prepare(self) -> bool:
        untold = [shard for shard in self._present() if shard not in self._told]
        for shard in untold:
            shard.ask_for_expiry(self._patience)
            self._told.add(shard)
        return bool(untold)

    def _sleep(self, topics: Sequence[str], end: float, sharp: bool) -> bool:
        if self.prepare():  # what was sent until now set no alarm
            return True
        present = self._present()
        if len(present) < len(self._shards):  # others are asked when they are back
            end = min(end, time.monotonic() + AGAIN)
        alarms = {f"{shard.prefix}alarm".encode() for shard in present}
        listeners = [Listener(server) for server in dict.fromkeys(shard.connections.server for shard in present)]
        try:
            for listener in listeners:
                listener.open("SUBSCRIBE", f"__keyevent@{self._address.db}__:expired", patience=self._patience)
            swept = time.monotonic()
            while not self._closed and (left := end - time.monotonic()) > 0:
                if time.monotonic() > swept + SWEEP:
                    swept = time.monotonic()
                    if self._sweep(topics):
                        break
                    _check_place(listeners)
                for listener in Listener.hear(listeners, min(left, SLICE)):
                    told = listener.answer()
                    if isinstance(told, list) and told[-1] in alarms:
                        return True
        finally:
            for listener in listeners:  # an idle subscription would pile up messages
                listener.close()
        return True  # nobody takes the tokens


def _check_place(listeners: Sequence[Listener]) -> None:
    """Nothing may come to those who listen to a server that another one has replaced, or that was silent."""
    if any(listener.outdated for listener in listeners):
        raise ConnectionResetError("the connection is outdated")


Listeners: TypeAlias = dict[Shard, Listener]

WAKEUPS: Mapping[Wake, type[Wakeup]] = {
    "list": BlockingWakeup,
    "poll": PollingWakeup,
    "expiry": ExpiryWakeup,
}
