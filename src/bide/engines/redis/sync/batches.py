# Generated from ../aio/batches.py by tools/unasync.py; change that file instead.
"""Batches that concern messages there are: which part of one goes to which shard, and what all answered together."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from bide.engines.base import Hold, Ref
from bide.engines.lots import Ends
from bide.engines.redis.answers import Told, in_pieces, known, part_of, together
from bide.engines.redis.failures import PARTS, RENEWAL
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.protocol import sends
from bide.engines.redis.sync.shard import Shard
from bide.engines.redis.sync.shards import Shards
from bide.engines.redis.topology import Generation
from bide.errors import BideError, ConfirmTimeout, OutcomeUnknown, Unavailable
from bide.rounds import Round

T = TypeVar("T")
R = TypeVar("R", bound=list[Any])


class ShardBatches:
    def __init__(self, namespace: Namespace, shards: Shards) -> None:
        self._namespace = namespace
        self._shards = shards

    def by_ref(
        self,
        items: Sequence[T],
        refs: Sequence[Ref],
        call: Callable[[Shard, Sequence[T]], R],
        gone: object,
    ) -> list[Any]:
        """The shard of an id knows; by a key, those that empty themselves are asked first, as they get nothing new."""
        if self._shards.only is not None:
            return self._by_ref(items, refs, call, gone)
        chains: dict[tuple[int, ...], list[int]] = {}  # by the shards that know of them, one after the other
        for i, ref in enumerate(refs):
            chains.setdefault(self._namespace.shards_of_ref(ref), []).append(i)
        chosen = list(chains.values())
        told = Round(chosen, lambda some: self._by_ref([items[i] for i in some], [refs[i] for i in some], call, gone)).answers()
        return together(len(items), zip(chosen, told, strict=True))

    def _by_ref(
        self,
        items: Sequence[T],
        refs: Sequence[Ref],
        call: Callable[[Shard, Sequence[T]], R],
        gone: object,
    ) -> list[Any]:
        """What shards of an older spread know nothing of, those of the next one are asked for."""
        told = list[Told]()
        left, asked = list(range(len(items))), list[Generation]()
        while left and (rest := [each for each in self._namespace.generations if each not in asked]):
            generation = rest[0]
            asked.append(generation)
            found: Sequence[Any] | BideError
            try:
                found = self.by_shard(
                    left,
                    lambda i, generation=generation: self._namespace.shard_of_ref(refs[i], generation),  # type: ignore[misc]
                    lambda shard, some: call(shard, [items[i] for i in some]),
                )
            except BideError as error:
                found = error
            answers = known(found, len(left)) if isinstance(found, BideError) else found
            unknown = [k for k, answer in enumerate(answers) if answer == gone and refs[left[k]].id is None]
            if isinstance(found, BideError) and gone is None:  # nor is it known which they are
                unknown = []
            if not told and not unknown and not isinstance(found, BideError):  # as it mostly is
                return list(found)
            ended = [k for k in range(len(left)) if k not in unknown]
            told.append(([left[k] for k in ended], part_of(found, ended)))
            left = [left[k] for k in unknown]
        return together(len(items), [*told, (left, [gone] * len(left))])

    def by_shard(
        self,
        items: Sequence[T],
        shard_of: Callable[[T], int],
        call: Callable[[Shard, Sequence[T]], R],
        *,
        brief: bool = False,
    ) -> list[Any]:
        """Ask each shard for its part of a batch, side by side. The answers are in the order of the batch.

        When one fails and another was done, it is OutcomeUnknown, with the answers of the others, or ConfirmTimeout if each was
        done. `brief`: a shard that does not answer is not asked at all.
        """
        spread, only = self._namespace.spread, self._shards.only
        most = sends.LOT_PART if only is not None and type(items) is Ends else sends.PART
        if only is not None and len(items) <= most:  # the short way, that most take
            try:
                told: list[Any] | ConfirmTimeout = call(only, items)
            except ConfirmTimeout as error:
                if self._namespace.spread is spread:
                    raise
                told = error
            if self._namespace.spread is spread and not isinstance(told, Exception):
                return told
            # it was the only one no more, and knows nothing of what others have
            others = [i for i, item in enumerate(items) if shard_of(item) != only.number]
            own = [i for i in range(len(items)) if i not in others]
            try:
                found: Sequence[Any] | BideError = self.by_shard([items[i] for i in others], shard_of, call)
            except BideError as error:
                found = error
            return together(len(items), [(own, part_of(told, own)), (others, found)])

        def ask(part: tuple[Shard, Sequence[int]]) -> list[Told]:
            shard, indexes = part
            told: list[Told] = []
            failed: BideError | None = None
            for first in range(0, len(indexes), most):
                some = indexes[first : first + most]
                try:
                    if (brief or told) and shard.is_away():
                        raise failed or shard.absence()
                    if shard is only:
                        told.append((some, self.by_shard(items[some[0] : some[-1] + 1], shard_of, call)))
                    else:
                        told.append((some, call(shard, [items[i] for i in some])))
                except BideError as error:
                    failed = failed or (None if isinstance(error, ConfirmTimeout) else error)
                    told.append((some, error))
            return told

        if only is not None:
            return together(len(items), ask((only, range(len(items)))))
        parts = self._shards_of(items, shard_of)
        return together(len(items), in_pieces(Round(parts, ask).answers()))

    def renew(self, holds: Sequence[Hold], lease: int, now: int | None) -> list[bool]:
        """Renew leases on several shards. A shard that does not answer is waited for no longer than a moment."""
        patience = min(lease / 1000 / PARTS, RENEWAL)
        try:
            return self.by_shard(
                holds,
                self._namespace.shard_of_id,
                lambda shard, some: shard.extend(some, lease, now, patience=patience),
                brief=True,
            )
        except (Unavailable, OutcomeUnknown) as error:
            raise self._shards.of_a_part(error, len(holds)) from error

    def _shards_of(self, items: Sequence[T], shard_of: Callable[[T], int]) -> list[tuple[Shard, list[int]]]:
        """Which of a batch go where. A shard that is not known may be new; if it is not, any other says that it has nothing."""
        parts = sends.by_shard(items, shard_of)
        shards = self._shards.hear_of(parts)
        any_shard = min(shards.values(), key=lambda shard: shard.silent)
        return [(shards.get(number, any_shard), indexes) for number, indexes in parts.items()]
