"""The verbs of kept results in memory, as functions over a store."""

from collections.abc import Sequence

from bide.engines.memory.store import Store
from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept, Result


def expect(store: Store, expected: Sequence[Expected | Dependent], now: int | None) -> None:
    with store.alone(), store:
        at = store.now(now)
        for each in expected:
            if isinstance(each, Dependent):
                store.results.depend(each)
            else:
                store.results.expect(each.id, each.until, at)


def fulfil(store: Store, kept: Sequence[Kept], now: int | None) -> list[list[str]]:
    with store.alone(), store:
        at = store.now(now)
        for each in kept:
            store.results.fulfil(each, at)
        return [store.results.followers(each.id) for each in kept]


def read(store: Store, ids: Sequence[str], now: int | None) -> list[Result | None]:
    with store.alone(), store:
        at = store.now(now)
        return [store.results.find(each, at) for each in ids]


def follow(store: Store, follows: Sequence[Follow], now: int | None) -> list[bool | None]:
    return [None if found is None else found.done for found in read(store, [each.on for each in follows], now)]


def arrive(store: Store, arrivals: Sequence[Arrival], now: int | None) -> list[bool]:
    with store.alone(), store:
        at = store.now(now)
        return [store.results.arrive(each.dependent, each.on, at) for each in arrivals]
