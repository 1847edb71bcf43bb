"""`bide reshard`: the messages of a namespace are spread over another number of shards, while everybody goes on.

No message moves. New ones go to new shards, and the old shards empty themselves; until they are empty, whoever looks for a
key asks them first. It can be broken off at any time, and goes on where it was when it is called again: all that is to be
known is stored in the shards, and whoever comes to a shard that has not heard of it tells it.
"""

import contextlib
import copy
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bide.core.formats import plural
from bide.engines.base import Swept
from bide.engines.redis.failures import REMEMBERED, OtherSpread
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.sync.gates import gates_left
from bide.engines.redis.sync.nodes import Cluster
from bide.engines.redis.sync.shard import Shard
from bide.engines.redis.sync.shards import Shards
from bide.engines.redis.topology import MOST, Generation, ShardSpread, well_placed
from bide.errors import BadOption, BideError, ConfigError, OutcomeUnknown, Unavailable
from bide.types import Stats

LONGEST = 30.0  # seconds for the new shards to learn which topics are paused, while they are paused and resumed


class Emptying(NamedTuple):
    """What the old shards still have."""

    shards: int
    pending: int
    dead: int
    gates: int  # locks and limits that are in use
    seconds: float  # until they have remembered for long enough what was sent before: operations, keys, results


class Resharding:
    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._shards = Shards(namespace)

    def __enter__(self) -> "Resharding":
        try:
            self._shards.open()
            self._shards.anchor.tell_time()  # which learns what is stored there
        except BaseException:
            self._shards.disconnect()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._shards.disconnect()

    @property
    def spread(self) -> ShardSpread:
        assert self._namespace.spread is not None, "it is known once this is open"
        return self._namespace.spread

    @property
    def size(self) -> int:
        """The number of shards that new messages go to."""
        return self.spread.current.size

    def begin(self, size: int) -> bool:
        """From now on new messages go to so many shards. Whether that is a change."""
        if size == self.size:
            return False
        old = self.spread
        try:
            new = old.with_new(size)
        except ValueError:
            raise BadOption(
                f"{plural(size, 'more shard')} would be too many: {len(old.live)} in use, and {MOST} is the limit. Name "
                "fewer, or wait until older ones are empty."
            ) from None
        new = ShardSpread(new.epoch, [*old.generations, self._placed(new.current)])
        until = time.monotonic() + LONGEST
        while self.spread is old:
            if time.monotonic() > until:
                raise Unavailable(
                    "Topics are paused or resumed all the time, so the new shards could not take over which ones are. "
                    "Nothing was done: call it again when that has ended."
                )
            pauses = self._shards.anchor.pauses()
            self._pause_alike(new)
            self._change(old, new, pauses)
        if self.spread != new:
            raise ConfigError(
                "Somebody else has just begun to spread the messages over another number of shards, so nothing was done. "
                "`bide reshard` says how many; if you want another number still, call it again."
            )
        self._tell_all(self._shards.live)
        return True

    def step(self) -> Emptying | None:
        """What is left in the old shards; None when none are left. The oldest are given up as soon as they are empty."""
        while len((spread := self.spread).generations) > 1:
            with contextlib.suppress(OtherSpread):
                old = self._shards_of(spread.generations[:-1])
                oldest = old[: spread.generations[0].size]
                self._tell_all(oldest)  # if this was broken off before; they take nothing new then
                emptying, left = self._look(old), self._look(oldest)
                if self.spread is not spread:  # somebody else has given some up
                    continue
                if left.pending or left.dead or left.gates or left.seconds > 0:
                    return emptying
                if self._change(spread, spread.without_oldest()):
                    self._tell_all([*oldest, *self._shards.live])
        return None

    def _change(self, old: ShardSpread, new: ShardSpread, *pauses: bytes) -> bool:
        """Shard 0 is the first to be told, and takes one change of several. Whether it took this one.

        `pauses`: those that the new shards have taken over. Shard 0 takes no change if there have been more.
        """
        with contextlib.suppress(OtherSpread):  # then the namespace has learned what is stored there
            if self._shards.anchor.respread(old, new, *pauses):
                self._namespace.learn(new)
        return self.spread == new

    def _placed(self, generation: Generation) -> Generation:
        if not self._namespace.address.clustered:
            return self._namespace.placed(generation.first, generation.size)
        spans = Cluster(self._namespace.address).spans()
        return well_placed(self._namespace.address.namespace, generation.first, generation.size, spans)

    def _pause_alike(self, new: ShardSpread) -> None:
        """Before anything is sent there, the new shards learn which topics are paused. They may have been used before."""
        ahead = copy.copy(self._namespace)  # it names the new shards, and tells what is known until now
        ahead.spread = new
        paused = {name for shard in self._shards.live for name, each in _topics(shard) if each.paused}
        shards = Shards(ahead)
        try:
            for number in new.current.numbers:
                there = {name for name, each in _topics(shards[number]) if each.paused}
                for topic in sorted(paused ^ there):
                    shards[number].pause(topic, topic in paused)
        finally:
            shards.disconnect()

    def _shards_of(self, generations: Sequence[Generation]) -> list[Shard]:
        return [self._shards[number] for each in generations for number in each.numbers]

    def _look(self, shards: Sequence[Shard]) -> Emptying:
        pending = dead = gates = 0
        seconds = 0.0
        for shard in shards:
            for _, each in _topics(shard):
                pending += each.scheduled + each.ready + each.leased
                dead += each.dead
            gates += gates_left(shard)
            seconds = max(seconds, (REMEMBERED - shard.since_spread()) / 1000, shard.bound_for() / 1000)
        return Emptying(len(shards), pending, dead, gates, seconds)

    def _tell_all(self, shards: Sequence[Shard]) -> None:
        """All shards learn of it, and with them all who come there: also those that have never had a message.

        It is done, since shard 0 has taken it. A server that is waited for in vain is not asked again.
        """
        left, silent = Swept(0, False), set[str]()
        for shard in (self._shards.anchor, *shards):
            if shard.place not in silent:
                try:
                    shard.calls.pin()
                except BideError as error:
                    left += shard.left(error)
                    if shard.is_all_silent:
                        silent.add(shard.place)
        if left.missing or left.refused:
            why = [*left.refused, *(f"{place} does not answer." for place in left.missing)]
            raise OutcomeUnknown(
                f"New messages go to {plural(self.size, 'shard')}, but not all servers have been told. {' '.join(why)} "
                "Programs go on meanwhile. When that is mended, call it again: it goes on where it was."
            )


def _topics(shard: Shard) -> Iterator[tuple[str, Stats]]:
    yield from shard.stats(None, (), None, None).items()
