"""The verbs of kept results, as functions that are run in a transaction."""

from collections.abc import Sequence

from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept, Result, apart
from bide.engines.sqlite.transaction import FileNamespace, Transaction


def expect(tx: Transaction, namespace: FileNamespace, expected: Sequence[Expected | Dependent], now: int | None) -> None:
    at, space = tx.times.now(namespace, now), namespace.name
    results, dependents = apart(expected)
    tx.sql.run_many("expect", [{"space": space, "message": each.id, "until": each.until, "now": at} for each in results])
    rows = [
        {"space": space, "message": each.id, "other": other, "until": each.until} for each in dependents for other in each.on
    ]
    tx.sql.run_many("depend", rows)


def fulfil(tx: Transaction, namespace: FileNamespace, kept: Sequence[Kept], now: int | None) -> list[list[str]]:
    at, space = tx.times.now(namespace, now), namespace.name
    rows = [
        {"space": space, "message": each.id, "until": at + each.lasts, "value": each.value, "token": each.token, "now": at}
        for each in kept
    ]
    tx.sql.run_many("fulfil", rows)
    return [[name for (name,) in tx.sql.all("followers", {"space": space, "other": each.id})] for each in kept]


def read(tx: Transaction, namespace: FileNamespace, ids: Sequence[str], now: int | None) -> list[Result | None]:
    at = tx.times.now(namespace, now)
    rows = [tx.sql.one("read_result", {"space": namespace.name, "message": each, "now": at}) for each in ids]
    return [None if row is None else Result(done=bool(row[0]), value=row[1]) for row in rows]


def follow(tx: Transaction, namespace: FileNamespace, follows: Sequence[Follow], now: int | None) -> list[bool | None]:
    """Nothing is to be written: who waits for a message is found by the rows of dependent messages."""
    found = read(tx, namespace, [each.on for each in follows], now)
    return [None if each is None else each.done for each in found]


def arrive(tx: Transaction, namespace: FileNamespace, arrivals: Sequence[Arrival], now: int | None) -> list[bool]:
    at, space = tx.times.now(namespace, now), namespace.name
    ready = []
    for each in arrivals:
        if each.on is None:
            tx.sql.run("forget_waiting", {"space": space, "message": each.dependent})
        else:
            tx.sql.run("arrive", {"space": space, "message": each.dependent, "other": each.on})
        many, arrived = tx.sql.one("waits_for", {"space": space, "message": each.dependent, "now": at})
        ready.append(many > 0 and many == arrived)
    return ready
