# unasync: ../sync/around.py
"""Claims and upkeep that go around several shards. One that fails keeps nobody from what the others have."""

import contextlib
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from bide.engines.base import MAX_BATCH, Claim, Claimed, End, Swept, Tended, as_one
from bide.engines.redis.aio.gates import recall
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.aio.shards import AsyncShards
from bide.engines.redis.failures import BRIEF
from bide.engines.redis.presence import HASTE
from bide.engines.redis.protocol import claims, sends
from bide.engines.redis.protocol.encoding import name_of
from bide.errors import BideError, ConfirmTimeout, OutcomeUnknown, Unavailable
from bide.rounds import AsyncRound

SOON = 0.5  # seconds
LEASE = 1_000  # ms, of what is released at once


class _Failure(NamedTuple):
    error: BideError
    away: bool  # the shard does not answer, or did not then


class AsyncAround:
    def __init__(self, me: str, shards: AsyncShards) -> None:
        self._me = me
        self._shards = shards
        # of each shard: the requests that may hold something there, of which nobody was told
        self._untold: dict[AsyncShard, set[str]] = defaultdict(set)

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
        failed: dict[AsyncShard, _Failure] = {}
        told = await self._held(limit, lease, request, now, failed) if again else []
        found = [each for claim in told for each in claim.messages]
        held, new = bool(found), bool(topics) or not told
        turned = claims.turned(list(dict.fromkeys(topics)), first)
        untold: set[AsyncShard] = set()
        try:
            shards = self._in_turn(first) if new else []
            for turn, shard in enumerate(shards):
                last = turn == len(shards) - 1
                if shard in failed and (told or not last):
                    continue
                if told and shard.is_away():
                    failed[shard] = _Failure(shard.absence(), away=True)
                    continue
                room = 0 if held else max(0, limit - len(found))
                named, others = _unserved_first(turned, found)
                # a shard that stopped at its bounds may have more
                keep = others if others <= room and (not last or any(claim.more for claim in told)) else 0
                patience = None if last and not told else BRIEF  # while others answer, nobody waits for one
                try:
                    await self._give_back(shard, lease, now, patience)
                    if not held:
                        untold.add(shard)
                    # without room, a shard only tells when to come back
                    claim = await shard.claim(
                        self._me, named, room, lease, request, now, keep=keep, woken=woken, patience=patience
                    )
                    if not held:  # an earlier try of the same claim may have reached the shard only now
                        await _release(shard, claim.messages[room:], now, patience)
                        found += claim.messages[:room]
                except BideError as error:
                    failed[shard] = _Failure(error, shard.silent)
                else:
                    failed.pop(shard, None)
                    told.append(claim)
            untold &= failed.keys()  # of the others' messages the caller is told now
            if failed and new and not found:
                self._raise(failed, some=bool(told))
        finally:
            for shard in untold:
                self._untold[shard].add(request)
        # to those who only ask what they hold, a shard that is away may hold more
        claim = _together(told, found, limit, failed=bool(failed), more=bool(failed) and (bool(found) or not topics))
        _compare(claim.now, [shard for shard in shards if shard not in failed])
        return claim

    async def tend(self, budget: int, ended_by: int | None, now: int | None, first: int) -> Tended:
        shards = self._in_turn(first)
        did = Tended()
        failed: list[BideError] = []
        for turn, shard in enumerate(shards):
            if (spare := budget - _pieces(did)) <= 0:
                return did + Tended(more=True)
            if shard.silent and len(failed) < turn:  # others did; it is for claims to find out when it is back
                continue
            patience = None if turn == len(failed) == len(shards) - 1 else BRIEF
            try:
                told = await shard.tend(min(spare, sends.PART), ended_by, now, patience=patience)
                if told.next_in == 0 and (left := spare - _pieces(told)) > 0:
                    told = replace(told, next_in=None) + await recall(shard, left, now, patience=patience)
                did += replace(told, more=told.more or told.next_in == 0)
            except BideError as error:  # one shard that fails keeps the others from nothing
                failed.append(error)
        if len(failed) == len(shards):
            raise failed[0]
        return did

    async def sweep(
        self, ids: Sequence[str] | None, call: Callable[[AsyncShard, int, float | None], Awaitable[Swept]]
    ) -> Swept:
        """Change a page of many, or those with these ids. `call`: what a shard does, after how many of others, in which time.

        A shard that fails is left out and told of, if another one does it. While another server may do it, none is waited for
        longer than a moment, and none for each of its shards. Each server that fails is told of once, or in the error.
        """
        did, answered, failed = Swept(0, False), False, dict[AsyncShard, BideError]()
        silent = set[str]()  # servers that were waited for
        concerned = None if ids is None else {name_of(id).shard for id in ids}
        try:
            await self._shards.hear_of(concerned or (), HASTE if len(self._shards) > 1 else None)
        except BideError as error:  # nobody knows of some of them
            failed[self._shards.anchor] = error
            if self._shards.anchor.is_all_silent:
                silent.add(self._shards.anchor.place)
        servers = {shard.place for shard in self._shards if concerned is None or shard.number in concerned}
        for patience in (HASTE, None) if len(servers) > 1 else (None,):
            for shard in self._shards.one_after_another():
                if shard.place in silent or (concerned is not None and shard.number not in concerned):
                    continue
                if not isinstance(failed.get(shard), Unavailable | None):  # what it may have done would be told as gone
                    continue
                try:
                    if patience is not None and shard.is_away():
                        raise shard.absence()
                    did, answered = did + await call(shard, did.count, patience), True
                    failed.pop(shard, None)
                except BideError as error:
                    failed[shard] = error
                if shard.is_all_silent:  # also if it has done a part
                    silent.add(shard.place)
            if answered or not failed:
                break
            silent.clear()
        if failed and not answered:
            raise as_one(list(_by_server(failed).values()))
        return sum((shard.left(why) for shard, why in _by_server(failed).items()), did)

    async def pause(self, topic: str, paused: bool) -> None:
        """Raises OutcomeUnknown if some shards have done it, and others have not; ConfirmTimeout if all have, and not all of
        them confirmed it.
        """
        asked, told = list[AsyncShard](), list[Exception | None]()
        counted: Exception | None = None
        while left := [shard for shard in self._shards if shard not in asked]:
            asked += left
            told += await AsyncRound(left, lambda shard: shard.pause(topic, paused)).answers()
            if all(each is None or isinstance(each, ConfirmTimeout) for each in told):
                # a reshard that has not seen it begins again; after a reshard, this tells of the new shards
                [counted] = await AsyncRound([self._shards.anchor], lambda first: first.count_pause()).answers()
        short = [each for each in (*told, counted) if isinstance(each, ConfirmTimeout)]
        failed = {shard: each for shard, each in zip(asked, told, strict=True) if each is not None and each not in short}
        if failed and len(failed) == len(asked):
            raise as_one(list(failed.values()))
        if counted is not None and counted not in short:
            failed[self._shards.anchor] = counted
        if failed:
            raise _in_part(f"{topic} is {'paused' if paused else 'resumed'}", failed)
        if short:
            raise short[0]

    def _in_turn(self, first: int) -> list[AsyncShard]:
        """The shards, but last those that did not answer lately."""
        live = self._shards.live
        first %= len(live)
        return sorted([*live[first:], *live[:first]], key=lambda shard: shard.silent)

    def _raise(self, failed: "Mapping[AsyncShard, _Failure]", *, some: bool) -> None:
        """Say that a shard fails; but not that it does not answer, while others do."""
        for failure in failed.values():
            if not (some and failure.away):
                raise failure.error

    async def close(self) -> None:
        """Release what nobody was told of, where a server answers soon."""
        for shard, requests in list(self._untold.items()):
            if requests and not shard.silent:
                with contextlib.suppress(BideError):
                    await self._give_back(shard, LEASE, None, BRIEF)

    async def _held(
        self, limit: int, lease: int, request: str, now: int | None, failed: "dict[AsyncShard, _Failure]"
    ) -> list[Claim]:
        """What the request holds already."""
        claims: list[Claim] = []
        shards = self._in_turn(0)
        for turn, shard in enumerate(shards):
            last = turn == len(shards) - 1
            try:
                if claims and shard.is_away():
                    failed[shard] = _Failure(shard.absence(), away=True)
                    continue
                patience = None if last and not claims else BRIEF
                claims.append(await shard.claim(self._me, [], limit, lease, request, now, patience=patience))
                self._untold[shard].discard(request)
            except BideError as error:
                failed[shard] = _Failure(error, shard.silent)
        return claims

    async def _give_back(self, shard: AsyncShard, lease: int, now: int | None, patience: float | None) -> None:
        """Release what earlier claims hold on a shard, and nobody was told of."""
        requests = self._untold[shard]
        for request in list(requests):
            if request not in requests:  # a claim beside this one asks for it
                continue
            requests.discard(request)
            try:
                claim = await shard.claim(self._me, [], MAX_BATCH, lease, request, now, patience=patience)
                await _release(shard, claim.messages, now, patience)
            except BaseException:
                requests.add(request)
                raise


def _in_part(done: str, failed: Mapping[AsyncShard, Exception]) -> Exception:
    """What to raise of what others did."""
    ours = {shard: error for shard, error in failed.items() if isinstance(error, BideError)}
    for error in failed.values():
        if not isinstance(error, BideError):
            return error
    left = sum((shard.left(error) for shard, error in _by_server(ours).items()), Swept(0, False))
    told = [*left.refused, *(f"{place} does not answer." for place in left.missing)]
    perhaps = "perhaps " if all(isinstance(error, OutcomeUnknown) for error in ours.values()) else ""
    return OutcomeUnknown(f"{done}, but {perhaps}not everywhere: {' '.join(told)} When that is mended, call it again.")


def _by_server(failed: Mapping[AsyncShard, BideError]) -> dict[AsyncShard, BideError]:
    """One error of each: what a shard may have done comes before what others of its server have not."""
    found: dict[str, tuple[AsyncShard, BideError]] = {}
    for shard, error in failed.items():
        if shard.place not in found or isinstance(error, OutcomeUnknown):
            found[shard.place] = shard, error
    return dict(found.values())


def _compare(now: int, shards: Sequence[AsyncShard]) -> None:
    """Each server goes by its own clock."""
    for shard in shards:
        shard.behind = now - shard.now


def _together(claims: Sequence[Claim], found: Sequence[Claimed], limit: int, *, failed: bool, more: bool) -> Claim:
    """What the caller is told. Each server goes by its own clock, so their times are told from now, by the latest of them."""
    now = max(each.now for each in claims)
    dues = [now - each.now + each.next_due for each in claims if each.next_due is not None]
    upkeeps = [now - each.now + each.upkeep for each in claims if each.upkeep is not None]
    more = more or (len(found) < limit and (any(each.more for each in claims) or any(due <= now for due in dues)))
    wakes = [each.wake for each in claims if each.wake is not None]
    if failed:
        wakes.append(time.monotonic() + SOON)
    return Claim(found, now, min(dues, default=None), more, min(upkeeps, default=None), min(wakes, default=None))


def _unserved_first(topics: Sequence[str], found: Sequence[Claimed]) -> tuple[list[str], int]:
    """The topics, with those first of which nothing was found; and how many these are."""
    served = {each.topic for each in found}
    unserved = [topic for topic in topics if topic not in served]
    return [*unserved, *(topic for topic in topics if topic in served)], len(unserved)


def _pieces(did: Tended) -> int:
    """How much of its budget an upkeep has used."""
    return did.returned + did.expired + did.dropped + len(did.called)


async def _release(shard: AsyncShard, claimed: Sequence[Claimed], now: int | None, patience: float | None) -> None:
    ends = [End(each.topic, each.id, each.token, "release") for each in claimed]
    for first in range(0, len(ends), sends.PART):
        await shard.settle(ends[first : first + sends.PART], now, patience=patience)
