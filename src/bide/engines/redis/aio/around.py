# unasync: ../sync/around.py
"""Claims that go around several shards. One that fails keeps nobody from what the others have."""

import contextlib
from collections.abc import Sequence

from bide.engines.base import MAX_BATCH, Claim, Claimed, End
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.protocol import delivering, sending
from bide.errors import BideError
from bide.wakeable import AsyncBriefly

SOON = 0.5  # seconds
LEASE = 1_000  # ms, of what is released at once


class AsyncAround:
    def __init__(self, me: str, shards: Sequence[AsyncShard]) -> None:
        self._me = me
        self._shards = shards
        # of each shard: the requests that may hold something there, of which nobody was told
        self._untold: list[set[str]] = [set() for _ in shards]

    async def claim(
        self,
        topics: Sequence[str],
        limit: int,
        lease: int,
        request: str,
        now: int | None,
        first: int,
        *,
        again: bool,
        woken: bool,
    ) -> Claim:
        """Claim on one shard after the other. A repeated request gets what it holds already, on any shard, and nothing else.

        While there is room for one message of each topic, a shard leaves room for the topics that it has no message of:
        another shard may have one. What a shard has leased that nobody is told of is released before the next claim there.
        """
        failed: dict[int, BideError] = {}  # by shard
        claims = await self._held(limit, lease, request, now, failed) if again else []
        found = [each for claim in claims for each in claim.messages]
        held, new = bool(found), bool(topics) or not claims
        turned = delivering.turned(list(dict.fromkeys(topics)), first)
        untold: set[int] = set()  # shards
        try:
            for turn in range(len(self._shards) if new else 0):
                place = (first + turn) % len(self._shards)
                if place in failed:
                    continue
                room = 0 if held else max(0, limit - len(found))
                named, others = _unserved_first(turned, found)
                # a shard that stopped at its bounds may have more
                later = turn < len(self._shards) - 1 or any(claim.more for claim in claims)
                keep = others if others <= room and later else 0
                shard = self._shards[place]
                try:
                    await self._give_back(place, lease, now)
                    if not held:
                        untold.add(place)
                    # without room, a shard only tells when to come back
                    claim = await shard.claim(self._me, named, room, lease, request, now, keep=keep, woken=woken)
                    if not held:  # an earlier try of the same claim may have reached the shard only now
                        await _release(shard, claim.messages[room:], now)
                        found += claim.messages[:room]
                except BideError as error:
                    failed[place] = error
                else:
                    claims.append(claim)
            untold &= failed.keys()  # of the others' messages the caller is told now
            if failed and new and not found:
                raise next(iter(failed.values()))
        finally:
            for place in untold:
                self._untold[place].add(request)
        return _together(claims, found, limit, failed=bool(failed))

    async def close(self) -> None:
        """Release what nobody was told of, where a server answers soon."""
        for place, requests in enumerate(self._untold):
            if requests:
                with contextlib.suppress(BideError, TimeoutError):
                    await self._try_to_give_back(place)

    async def _try_to_give_back(self, place: int) -> None:
        async with AsyncBriefly(SOON):
            await self._give_back(place, LEASE, None)

    async def _held(self, limit: int, lease: int, request: str, now: int | None, failed: dict[int, BideError]) -> list[Claim]:
        """What the request holds already."""
        claims: list[Claim] = []
        for place, shard in enumerate(self._shards):
            try:
                claims.append(await shard.claim(self._me, [], limit, lease, request, now))
                self._untold[place].discard(request)
            except BideError as error:
                failed[place] = error
        return claims

    async def _give_back(self, place: int, lease: int, now: int | None) -> None:
        """Release what earlier claims hold on a shard, and nobody was told of."""
        shard, requests = self._shards[place], self._untold[place]
        for request in list(requests):
            if request not in requests:  # a claim beside this one asks for it
                continue
            requests.discard(request)
            try:
                claim = await shard.claim(self._me, [], MAX_BATCH, lease, request, now)
                await _release(shard, claim.messages, now)
            except BaseException:
                requests.add(request)
                raise


def _together(claims: Sequence[Claim], found: Sequence[Claimed], limit: int, *, failed: bool) -> Claim:
    """What the caller is told. Each server goes by its own clock, so their times are told from now, by the latest of them."""
    now = max(each.now for each in claims)
    dues = [now - each.now + each.next_due for each in claims if each.next_due is not None]
    upkeeps = [now - each.now + each.upkeep for each in claims if each.upkeep is not None]
    more = len(found) < limit and (any(each.more for each in claims) or any(due <= now for due in dues))
    wake = min((each.wake for each in claims if each.wake is not None), default=None)
    return Claim(found, now, min(dues, default=None), failed or more, min(upkeeps, default=None), wake)


def _unserved_first(topics: Sequence[str], found: Sequence[Claimed]) -> tuple[list[str], int]:
    """The topics, with those first of which nothing was found; and how many these are."""
    served = {each.topic for each in found}
    unserved = [topic for topic in topics if topic not in served]
    return [*unserved, *(topic for topic in topics if topic in served)], len(unserved)


async def _release(shard: AsyncShard, claimed: Sequence[Claimed], now: int | None) -> None:
    ends = [End(each.topic, each.id, each.token, "release") for each in claimed]
    for first in range(0, len(ends), sending.PART):
        await shard.settle(ends[first : first + sending.PART], now)
