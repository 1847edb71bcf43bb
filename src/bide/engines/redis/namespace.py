"""What all engines of a source share: the namespace, its shards and their servers, and the latest time of each server."""

import math
import re
import time
import zlib
from collections.abc import Hashable, Sequence

from bide.engines.base import End, Hold, NewMessage, Ref, Settings
from bide.engines.redis.client import Endpoint
from bide.engines.redis.protocol.encoding import name_of
from bide.engines.redis.topology import Generation, ShardSpread, plain, scattered
from bide.errors import ConfigError

GIVEN_UP = re.compile(r"~([0-9]{1,3})\.[0-9a-f]{16}\.[0-9]{1,14}#[0-9]{1,3}")
"""The operation of a message whose put was given up: shard, lane, number, position."""

PROMPT = 0.005  # seconds: a claim that begins later after its time was held up
GAIN, STEP = 0.02, 2e-5  # of what a claim was late, and seconds for one that was early
MOST = 0.002  # seconds
SILENT = 60.0  # seconds; after a longer silence the first operation comes too late, and learns the time


class ServerClock:
    """The latest engine time that one server told. It never goes back."""

    def __init__(self) -> None:
        self.known: int = 0  # in ms
        self.wrote: bool = False  # whether the server has ever run an operation
        self._heard = -math.inf  # when it was told, monotonic

    def hear(self, now: int, *, wrote: bool = False) -> None:
        self.wrote = self.wrote or wrote
        if now > self.known:
            self.known, self._heard = now, time.monotonic()

    def until(self, now: int | None, seconds: float) -> int:
        """The engine time until which an operation may act, if its sender waits `seconds` for it.

        If the server's clock was moved back, engine time runs at half speed and this would be too late: hence SILENT.
        """
        passed = min(time.monotonic() - self._heard, SILENT)
        return max(self.known + int(passed * 1000), now or 0) + int(seconds * 1000)


class Lead:
    """How much sooner than the due time to begin a claim, so that it is with the server when the message is due. Learned.

    A claim that is there too early finds nothing and is made again, so about one in seven may be, and no more.
    """

    def __init__(self) -> None:
        self.seconds: float = 0.0
        self._planned: tuple[float, int] | None = None  # when the next claim is to begin, and for what due time in µs

    def plan(self, began: float, ended: float, us: int, due: int | None) -> float | None:
        """When to claim again for what is due then, in ms: after a claim that began and ended so, and ran at `us`."""
        if self._planned is not None:
            self._learn(*self._planned, began, us)
        self._planned = None
        if due is None:
            return None
        wake = (began + ended) / 2 + (due * 1_000 - us) / 1e6 - self.seconds
        self._planned = wake, due * 1_000
        return wake

    def _learn(self, wake: float, due: int, began: float, us: int) -> None:
        if not 0 <= began - wake < PROMPT:  # it had other reasons
            return
        late = min((us - due) / 1e6, MOST / 2)
        self.seconds += GAIN * late if late > 0 else -STEP
        self.seconds = min(max(0.0, self.seconds), MOST)


class Namespace:
    def __init__(self, address: Endpoint, settings: Settings, servers: Sequence[Endpoint] = ()) -> None:
        """`servers`: the server of each shard, if there are several."""
        self.address: Endpoint = address
        self._servers = servers
        self._clocks: dict[Hashable, ServerClock] = {}
        self.confirm: str = address.confirm
        self.dead_for: int = settings.dead_for
        self._dead_max = settings.dead_max
        self._stored = ""  # how messages are spread as a shard has told it
        self.spread_as(None if address.clustered or (address.shards or 1) > 1 else plain(1))

    def spread_as(self, spread: ShardSpread | None) -> None:
        """From now on. Other threads may be under way: who has read `told` and then finds the old spread tells the old one."""
        self.spread: ShardSpread | None = spread
        self.told: str = "" if spread is None else str(spread)  # as every call tells it
        # dead letters of a topic that each shard keeps: a share of those that were made together, as a reshard must drop none
        self._shares = {number: -(-self._dead_max // each.size) for each in self.generations for number in each.numbers}

    def learn(self, spread: ShardSpread) -> None:
        """What is stored in a shard: shard 0 has it as well, or something newer."""
        if spread != self.spread:
            self.spread_as(spread)
        self._stored = self.told

    @property
    def is_stored(self) -> bool:
        """Whether a shard has told that messages are spread like this, and not the URL alone."""
        return bool(self.told) and self._stored == self.told

    def placed(self, first: int, size: int) -> Generation:
        """New shards that are in no Cluster. wake=poll says that there may be a proxy, which spreads them by their tags."""
        name, proxied = self.address.namespace, self.address.wake == "poll"
        return scattered(name, first, size) if proxied else Generation(first, size)

    @property
    def live(self) -> Sequence[int]:
        return self.spread.live if self.spread else ()

    @property
    def highest(self) -> int:
        """The highest number of a shard that there is or was, as far as is known."""
        return self.spread.highest if self.spread else 0

    @property
    def generations(self) -> Sequence[Generation]:
        return self.spread.generations if self.spread else ()

    def server_of(self, shard: int) -> Endpoint:
        return self._servers[shard] if shard < len(self._servers) else self.address

    def dead_max(self, shard: int) -> int:
        """Dead letters of a topic that it keeps."""
        return self._shares.get(shard, self._dead_max)

    def clock_of(self, server: Hashable) -> ServerClock:
        """The one clock of a server, or of a shard that goes from server to server."""
        return self._clocks.setdefault(server, ServerClock())

    def tag(self, shard: int) -> str:
        """What the keys of a shard begin with. In a Cluster it decides on which node they are."""
        name = self.address.namespace
        return next((each.tag(name, shard) for each in self.generations if shard in each.numbers), f"{name}:{shard}")

    def prefix(self, shard: int) -> str:
        return f"{{{self.tag(shard)}}}:"

    def shard_of(self, new: NewMessage, otherwise: int, within: Generation) -> int:
        """By the key, so that a key has one message; else by the operation, so that a repeated send goes to the same shard."""
        if new.operation is not None and (asked := GIVEN_UP.fullmatch(new.operation)) and int(asked[1]) in within.numbers:
            return int(asked[1])
        if new.key is not None:
            return by_name(new.topic, new.key, within)
        return otherwise if new.operation is None else by_name(new.topic, new.operation, within)

    def shard_of_ref(self, ref: Ref, within: Generation) -> int:
        if ref.id is not None:
            return name_of(ref.id).shard
        return by_name(ref.topic or "", ref.key or "", within)

    def shards_of_ref(self, ref: Ref) -> tuple[int, ...]:
        """Those that may know of it, in the order in which they are asked."""
        if ref.id is not None:
            return (name_of(ref.id).shard,)
        return self.shards_of_name(ref.topic or "", ref.key or "")

    def shards_of_name(self, topic: str, text: str) -> tuple[int, ...]:
        """The same of a key, or of a gate, which has no topic."""
        return tuple(by_name(topic, text, each) for each in self.generations)

    def shard_of_id(self, delivery: End | Hold) -> int:
        return name_of(delivery.id).shard


def by_name(topic: str, text: str, within: Generation) -> int:
    return within.first + zlib.crc32(f"{topic} {text}".encode()) % within.size


def check_eviction(address: Endpoint, memory: bytes | str) -> None:
    """Refuse a server that evicts keys when it runs out of memory."""
    text = memory.decode() if isinstance(memory, bytes) else memory
    policy = dict(line.partition(":")[::2] for line in text.splitlines()).get("maxmemory_policy", "")
    if policy not in ("", "noeviction") and not address.allow_eviction:
        raise ConfigError(
            f"{address.shown} evicts keys when it is full (maxmemory-policy {policy}), and messages with them. "
            "Set maxmemory-policy noeviction, or add allow_eviction=1 to the URL if losing messages is fine."
        )


def check_events(address: Endpoint, told: Sequence[bytes]) -> None:
    """Refuse wake=expiry on a server that does not publish expired keys."""
    flags = bytes(told[1]) if len(told) == 2 else b""
    if b"E" not in flags or not (b"x" in flags or b"A" in flags):
        raise ConfigError(
            f"wake=expiry needs a server that tells of expired keys: set notify-keyspace-events to Ex at "
            f"{address.shown}, or leave wake= out of the URL."
        )
