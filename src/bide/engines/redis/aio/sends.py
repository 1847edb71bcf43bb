# unasync: ../sync/sends.py
"""New messages: which shards they go to, and which are asked before whether they know of them."""

import contextlib
from collections.abc import Sequence
from random import randrange

from msgspec.structs import replace

from bide.core.when import check_delay
from bide.engines.base import NewMessage
from bide.engines.redis.aio.shard import AsyncShard
from bide.engines.redis.aio.shards import AsyncShards
from bide.engines.redis.failures import BRIEF, OtherSpread
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.protocol import sending
from bide.engines.redis.spread import Generation, Spread
from bide.errors import BideError, ConfirmTimeout, OutcomeUnknown, Unavailable
from bide.ids import lane
from bide.types import Sent


class AsyncSends:
    """Each send is planned by how messages are spread, as far as is known. If that changes meanwhile, it is planned anew."""

    def __init__(self, namespace: Namespace, shards: AsyncShards) -> None:
        self._namespace = namespace
        self._shards = shards
        self._turn = randrange(2**16)
        self._passed_over: AsyncShard | None = None  # as it did not answer lately

    async def put(self, messages: Sequence[NewMessage], now: int | None) -> list[Sent]:
        while True:
            spread, only = self._namespace.spread, self._shards.only
            try:
                if only is not None and spread is not None and len(messages) == 1:  # the short way, that most sends take
                    return await only.put(messages, spread, now)
                return await self._put(messages, spread or self._spread(), now)
            except OtherSpread:
                continue  # messages go to other shards now

    async def _put(self, messages: Sequence[NewMessage], spread: Spread, now: int | None) -> list[Sent]:
        shards, (*old, current) = self._shards, spread.generations
        parts = self._parts(messages, current)
        if not parts:
            return []
        if self._passed_over is not None:
            passed_over, self._passed_over = self._passed_over, None
            await passed_over.is_away()  # whoever only sends finds out here that it is back
        if len(parts) > 1 or (old and any(map(_has_name, messages))):
            return await self._put_apart(messages, now)
        [(number, _)] = parts
        shard = shards[number]
        if any(map(_has_name, messages)):
            return await shard.put(messages, spread, now)
        while any(not shards[other].silent for other in current.numbers if other != shard.number):
            try:
                return await shard.put(messages, spread, now, patience=BRIEF)
            except Unavailable:  # it has done nothing, so another one may do it
                if not shard.silent:
                    raise
                shard = shards[self._any_shard(current)]
        return await shard.put(messages, spread, now)

    async def _put_apart(self, messages: Sequence[NewMessage], now: int | None) -> list[Sent]:
        """Send in several parts. Each message has an operation, so all can be sent again if one part fails.

        While some shards empty themselves, they are asked first what they know of a message with a name.
        """
        name = lane()
        named_before = list(map(_has_name, messages))
        named = [new if new.operation else replace(new, operation=f"{name}#{i}") for i, new in enumerate(messages)]
        for shard, indexes in self._parts(named, self._spread().current):  # before the first part is taken
            for i in indexes:
                check_delay(named[i].delay, named[i].at, max(self._shards[shard].clock.known, now or 0))
        answers: dict[int, Sent] = {}
        unconfirmed: dict[int, ConfirmTimeout] = {}
        while len(answers) + len(unconfirmed) < len(named):
            try:
                with contextlib.suppress(OtherSpread):  # what is left may go to others
                    await self._put_left(named, named_before, answers, unconfirmed, now)
            except BideError as error:
                if not answers and not unconfirmed and not isinstance(error, OutcomeUnknown):
                    raise
                told = f"{error} This was one part of several, and others of the batch were taken."
                operations = [new.operation or "" for new in named]
                raise OutcomeUnknown(told if answers or unconfirmed else str(error), operations=operations) from None
        for short in unconfirmed.values():  # all is done
            raise ConfirmTimeout(str(short), operations=[new.operation or "" for new in named])
        return [answers[i] for i in range(len(named))]

    async def _put_left(
        self,
        messages: Sequence[NewMessage],
        ask_old: Sequence[bool],
        answers: dict[int, Sent],
        unconfirmed: dict[int, ConfirmTimeout],
        now: int | None,
    ) -> None:
        """What has no answer yet. What is done and not confirmed keeps no other part from being done."""
        spread = self._spread()
        for generation in spread.generations:
            current = generation is spread.current
            left = [i for i in range(len(messages)) if i not in {*answers, *unconfirmed} and (current or ask_old[i])]
            for number, at in self._parts([messages[i] for i in left], generation):
                shard, some = self._shards[number], [messages[left[k]] for k in at]
                try:
                    told = await (shard.put if current else shard.put_known)(some, spread, now)
                except ConfirmTimeout as error:
                    if not current:
                        raise  # it may know nothing of them
                    unconfirmed.update({left[k]: error for k in at})
                else:
                    answers.update({left[k]: sent for k, sent in zip(at, told, strict=True) if sent is not None})

    def _parts(self, messages: Sequence[NewMessage], generation: Generation) -> list[tuple[int, list[int]]]:
        any_shard = self._any_shard(generation)
        return sending.put_parts(messages, lambda new: self._namespace.shard_of(new, any_shard, generation))

    def _any_shard(self, generation: Generation) -> int:
        """For what may be on any: the next one by turns, of those that answer."""
        self._turn += 1
        numbers = [generation.numbers[(self._turn + turn) % generation.size] for turn in range(generation.size)]
        chosen = next((number for number in numbers if not self._shards[number].silent), numbers[0])
        if chosen != numbers[0]:
            self._passed_over = self._shards[numbers[0]]
        return chosen

    def _spread(self) -> Spread:
        spread = self._namespace.spread
        assert spread is not None, "shards that are open know it"
        return spread


def _has_name(new: NewMessage) -> bool:
    """Whether a shard may know of it already."""
    return new.key is not None or new.operation is not None
