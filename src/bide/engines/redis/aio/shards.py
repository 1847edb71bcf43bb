# unasync: ../sync/shards.py
"""The shards of a namespace: on one server, on the master that Sentinels name, or over the masters of a Cluster."""

import contextlib
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

from bide.engines.redis.aio.connections import AsyncConnections
from bide.engines.redis.aio.nodes import AsyncCluster, AsyncRoute, AsyncSentinels
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.client import Endpoint
from bide.engines.redis.confirm import confirmation
from bide.engines.redis.failures import BRIEF, OtherSpread, other_spread
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.presence import HASTE
from bide.engines.redis.server import AsyncServer
from bide.engines.redis.topology import Generation, ShardSpread, likely_tags, slot_of, well_placed
from bide.engines.redis.topology import read as read_spread
from bide.errors import ConfigError, ConfirmTimeout, EngineError, OutcomeUnknown, Unavailable
from bide.rounds import AsyncAside, AsyncRound
from bide.wakeable import AsyncSignal

SOON = 0.5  # seconds between two questions to those who did not know, or did not answer


class _Live(NamedTuple):
    """The shards of one spread."""

    spread: ShardSpread | None
    by_number: dict[int, AsyncShard]
    in_order: list[AsyncShard]
    only: AsyncShard | None


class AsyncShards:
    """Those that one engine uses. They become others as soon as the namespace learns that messages are spread otherwise."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._made: dict[str, AsyncShard] = {}  # by the beginning of their keys
        self._servers: dict[Endpoint, AsyncConnections] = {}
        self._nodes: AsyncCluster | None = AsyncCluster(namespace.address) if namespace.address.clustered else None
        self._asked = confirmation(namespace.confirm, namespace.address.timeout)
        self._live = _Live(None, {}, [], None)
        self._aside = AsyncAside()  # for those who don't answer soon

    def __getitem__(self, number: int) -> AsyncShard:
        """Raises OtherSpread if there is none with this number any more: whoever has it from an older spread plans anew."""
        shard = self._now().by_number.get(number)
        if shard is None:
            raise OtherSpread(self._namespace.told)
        return shard

    def __iter__(self) -> Iterator[AsyncShard]:
        return iter(self._now().in_order)

    def __len__(self) -> int:
        return len(self._now().in_order)

    def one_after_another(self) -> Iterator[AsyncShard]:
        """Each of them once, and those that there are meanwhile."""
        done = set[AsyncShard]()
        while left := next((shard for shard in self if shard not in done), None):
            done.add(left)
            yield left

    async def hear_of(self, numbers: Collection[int], patience: float | None = None) -> Mapping[int, AsyncShard]:
        """All by their numbers. If one of these is not known it may be new: shard 0 would know of it, and others may.

        Raises the error of shard 0 if that does not answer and no other knows of it: there may be one all the same. `patience`:
        seconds for shard 0 if no other answers.
        """
        if self._unknown(numbers):
            anchor = self.anchor
            by_place = {shard.place: shard for shard in sorted(self.live, key=lambda shard: shard.silent, reverse=True)}
            others = [shard for place, shard in by_place.items() if place != anchor.place]
            failed = await self._ask_for(numbers, [anchor, *others]) if others else {}
            if not others or (len(failed) > len(others) and patience is None):
                await anchor.tell_time(patience)
            elif anchor in failed and (unknown := self._unknown(numbers)):
                if not isinstance(failed[anchor], Unavailable):
                    raise failed[anchor]
                named = ", ".join(map(str, unknown))
                raise Unavailable(f"{anchor.absence()} Only its shard 0 can say whether there is a shard {named}.")
        return self._now().by_number

    async def _ask_for(self, numbers: Collection[int], shards: Sequence[AsyncShard]) -> Mapping[AsyncShard, Exception]:
        """Ask shards, shard 0 first, until it answers or another one knows of these. Those that failed until then."""
        failed: dict[AsyncShard, Exception] = {}

        async def ask(shard: AsyncShard) -> None:
            if shard.is_out_of_sight():
                raise shard.absence()
            await shard.tell_time(HASTE)

        def is_enough(shard: AsyncShard, answer: Exception | None) -> bool:
            if isinstance(answer, Exception):
                failed[shard] = answer
                return False
            return shard is shards[0] or not self._unknown(numbers)

        await AsyncRound(shards, ask, self._aside).until(is_enough, BRIEF)
        return failed

    def _unknown(self, numbers: Collection[int]) -> list[int]:
        return sorted(set(numbers).difference(self._namespace.live))

    @property
    def live(self) -> list[AsyncShard]:
        return self._now().in_order

    @property
    def only(self) -> AsyncShard | None:
        """The one, if there is one."""
        live = self._live
        return (live if live.spread is self._namespace.spread else self._now()).only

    def _now(self) -> _Live:
        live, spread = self._live, self._namespace.spread
        if live.spread is not spread:
            found = {number: self._shard(number) for number in (spread.live if spread else ())}
            in_order = list(found.values())
            live = self._live = _Live(spread, found, in_order, in_order[0] if len(in_order) == 1 else None)
        return live

    @property
    def anchor(self) -> AsyncShard:
        """The first shard, which knows how all are spread also when it is not used any more."""
        return self._shard(0)

    async def open(self) -> None:
        """Of several, learn from shard 0 how all are spread; whoever comes first decides it, once for all."""
        if self._namespace.spread is not None:
            return
        namespace, anchor = self._namespace, self.anchor
        address = namespace.address
        known = await self._known_spread()
        if known is None:
            chosen = await self._chosen()
            namespace.spread_as(ShardSpread(0, [chosen]))
            if not chosen.suffixes:  # as everybody has it who says so many
                return
            try:
                with contextlib.suppress(ConfirmTimeout):  # nobody was promised that this lasts
                    await anchor.calls.pin()
                return
            except ConfigError:
                known = await anchor.known_spread()  # somebody else was first; or this user may not write
                if known is None:
                    namespace.spread_as(None)
                    raise
        found = read_spread(known)
        if not found.epoch and address.shards not in (None, found.current.size):
            raise ConfigError(other_spread(address.shown, known))
        namespace.learn(found)

    async def _chosen(self) -> Generation:
        address = self._namespace.address
        if self._nodes is None:
            return self._namespace.placed(0, address.shards or 1)
        return well_placed(address.namespace, 0, address.shards, await self._nodes.spans())

    async def _known_spread(self) -> str | None:
        """As shard 0 has it; if that does not answer soon, or refuses, as any other one of a Cluster has it."""
        if (nodes := self._nodes) is None:
            return await self.anchor.known_spread()
        known: list[str | None] = []
        failed: list[Exception] = []
        give_up = time.monotonic() + self.anchor.connections.server.retry_for

        async def of_first() -> list[str | None]:
            return [await self.anchor.known_spread()]

        async def of_others() -> list[str | None]:
            tags = likely_tags(self._namespace.address.namespace)
            while not (told := await nodes.stored(tags, "shards")):
                if known or failed or time.monotonic() > give_up:
                    break
                await AsyncSignal().wait(SOON)
            return list(sorted(map(bytes.decode, told), key=lambda text: read_spread(text).epoch)[-1:])

        def is_known(_: object, answer: list[str | None] | Exception) -> bool:
            if isinstance(answer, Exception):
                failed.append(answer)
            else:
                known.extend(answer)
            return bool(known)

        await AsyncRound([of_first, of_others], lambda ask: ask(), self._aside).until(is_known, BRIEF)
        if not known:
            raise failed[0]
        return known[0]

    async def greet(self) -> None:
        """Check the servers that answer soon and let us in, and the others when they are first needed.

        Raises ConfigError if all that answer refuse the user or the password, and Unavailable if none answers.
        """
        servers = self.one_a_server()
        if len(servers) == 1 or not await self._greet(servers, HASTE):
            await self._greet(servers, None)

    async def _greet(self, servers: Sequence[AsyncShard], patience: float | None) -> bool:
        """Whether one of them answers, and lets us in."""
        told = await AsyncRound(servers, lambda shard: shard.greet(patience), self._aside).soon(BRIEF)
        failed = [(shard, each) for shard, each in zip(servers, told, strict=True) if isinstance(each, Exception)]
        refusals = [each for _, each in failed if isinstance(each, ConfigError)]
        for shard, error in failed:
            if not isinstance(error, TimeoutError) and not shard.is_kept_from(error):
                raise error
        if patience is None and len(failed) == len(servers):
            raise refusals[0] if refusals else failed[0][1]
        return len(failed) < len(servers)

    def of_a_part(self, error: EngineError, asked: int) -> EngineError:
        """What to tell of those who don't answer, when not all were asked that may."""
        if (isinstance(error, OutcomeUnknown) and error.answers) or all(shard.silent for shard in self):
            return error
        return OutcomeUnknown(str(error), answers=[None] * asked)

    def one_a_server(self) -> list[AsyncShard]:
        """The first shard of each server."""
        return list({shard.connections: shard for shard in reversed(self.live)}.values())[::-1]

    async def disconnect(self) -> None:
        await self._aside.close()
        for connections in {shard.connections for shard in self._made.values()}:
            await connections.close()

    def abandon(self) -> None:
        """Close without the event loop, which is closed."""
        for connections in {shard.connections for shard in self._made.values()}:
            connections.abandon()

    def _shard(self, number: int) -> AsyncShard:
        prefix = self._namespace.prefix(number)
        if prefix not in self._made:
            first = self.anchor if number else None
            new = AsyncShard(number, self._namespace, self._connections(number), first)
            return self._made.setdefault(prefix, new)  # another thread may have been first
        return self._made[prefix]

    def _connections(self, number: int) -> AsyncConnections:
        namespace, address = self._namespace, self._namespace.server_of(number)
        if self._nodes is not None:  # a shard of a Cluster has connections and a clock of its own, as it goes from node to node
            tag = namespace.tag(number)
            return AsyncConnections(AsyncRoute(address, namespace.clock_of(tag), self._nodes, slot_of(tag)), self._asked)
        if address not in self._servers:
            clock = namespace.clock_of(address)
            route = AsyncRoute(address, clock, AsyncSentinels(address)) if address.service else None
            self._servers.setdefault(address, AsyncConnections(route or AsyncServer(address, clock), self._asked))
        return self._servers[address]
