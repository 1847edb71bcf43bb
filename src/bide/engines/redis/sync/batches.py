# Generated from ../aio/batches.py by tools/unasync.py; change that file instead.
"""Batches that concern messages there are: which part of one goes to which shard, and what all answered together."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeVar

from bide.engines.base import Hold, Ref
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.protocol import sending
from bide.engines.redis.spread import Generation
from bide.engines.redis.sync.around import AWAY
from bide.engines.redis.sync.shard import Shard
from bide.engines.redis.sync.shards import Shards
from bide.errors import BideError, ConfirmTimeout, OutcomeUnknown, Unavailable

T = TypeVar("T")
R = TypeVar("R", bound=list[Any])
PARTS = 3  # of a lease: a renewal waits for one of these


class Batches:
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
        answers: list[Any] = [gone] * len(items)
        left, asked = list(range(len(items))), list[Generation]()
        while left and (rest := [each for each in self._namespace.generations if each not in asked]):
            generation = rest[0]
            asked.append(generation)
            got = self.by_shard(
                left,
                lambda i, generation=generation: self._namespace.shard_of_ref(refs[i], generation),  # type: ignore[misc]
                lambda shard, some: call(shard, [items[i] for i in some]),
            )
            for i, answer in zip(left, got, strict=True):
                answers[i] = answer
            left = [i for i in left if answers[i] == gone and refs[i].id is None]
        return answers

    def by_shard(
        self,
        items: Sequence[T],
        shard_of: Callable[[T], int],
        call: Callable[[Shard, Sequence[T]], R],
        *,
        wait_for: Literal["all", "the only part", "nobody"] = "all",
    ) -> list[Any]:
        """Ask each shard for its part of a batch, in pieces if that is long. The answers are in the order of the batch.

        When one fails and another was done, it is OutcomeUnknown, with the answers of the others. `wait_for`: a shard that did
        not answer lately is asked last, or not at all.
        """
        spread, only = self._namespace.spread, self._shards.only
        if only is not None and len(items) <= sending.PART:  # the short way, that most take
            told = call(only, items)
            if self._namespace.spread is spread:
                return told
            # it was the only one no more, and knows nothing of what others have
            others = [i for i, item in enumerate(items) if shard_of(item) != only.number]
            found = self.by_shard([items[i] for i in others], shard_of, call) if others else []
            for i, answer in zip(others, found, strict=True):
                told[i] = answer
            return told
        answers: dict[int, Any] = {}
        untried: list[int] = []
        failures: list[BideError] = []
        parts = self._shards_of(items, shard_of)
        for shard, indexes in sorted(parts, key=lambda part: part[0].silent):
            try:
                if (wait_for == "nobody" or (wait_for == "the only part" and answers)) and shard.is_away():
                    untried += indexes
                    continue
                got = call(shard, [items[i] for i in indexes])
            except BideError as error:
                failures.append(error)
            else:
                answers.update(zip(indexes, got, strict=True))
        if len(answers) == len(items):
            return [answers[i] for i in range(len(items))]
        failed = next(iter(failures), None)
        done = [isinstance(error, ConfirmTimeout) for error in failures]
        if not answers and (not any(done) or (all(done) and not untried)):
            raise failed or Unavailable(AWAY)
        rest = "were done" if answers else "may not have been done"
        why = f"{failed or AWAY} This was one part of several, and others of the batch {rest}."
        raise OutcomeUnknown(why, answers=[answers.get(i) for i in range(len(items))], untried=untried) from failed

    def renew(self, holds: Sequence[Hold], lease: int, now: int | None) -> list[bool]:
        """Renew leases on several shards. A shard that does not answer is waited for no longer than a third of a lease."""
        patience = min(lease / 1000 / PARTS, self._shards.live[0].connections.server.retry_for)
        try:
            return self.by_shard(
                holds,
                self._namespace.shard_of_id,
                lambda shard, some: shard.extend(some, lease, now, patience=patience),
                wait_for="nobody",
            )
        except (Unavailable, OutcomeUnknown) as error:
            told = isinstance(error, ConfirmTimeout) or (isinstance(error, OutcomeUnknown) and error.answers)
            if told or all(shard.silent for shard in self._shards):
                raise
            raise OutcomeUnknown(str(error), answers=[None] * len(holds)) from error

    def _shards_of(self, items: Sequence[T], shard_of: Callable[[T], int]) -> list[tuple[Shard, list[int]]]:
        """Which of a batch go where. A shard that is not known may be new; if it is not, any other says that it has nothing."""
        parts = list(sending.parts(items, shard_of))
        if not all(number in self._namespace.live for number, _ in parts):
            self._shards.anchor.tell_time()
        shards = {shard.number: shard for shard in self._shards}
        any_shard = next(iter(shards.values()))
        return [(shards.get(number, any_shard), indexes) for number, indexes in parts]
