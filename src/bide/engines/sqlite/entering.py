"""The verbs of gates, as functions that are run in a transaction."""

from collections.abc import Sequence

import msgspec

from bide.core.rate import KEPT, Rate, Spending
from bide.engines.base import MAX_BATCH
from bide.engines.gates import Called, Entered, Entry, Held, Left, Recalled, Spend, Spent
from bide.engines.sqlite.gate import NEVER, Gate, Gates
from bide.engines.sqlite.rows import token_number, token_text
from bide.engines.sqlite.transaction import Namespace, Transaction

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Spending).decode


def enter(tx: Transaction, namespace: Namespace, entries: Sequence[Entry], now: int | None) -> list[Entered]:
    at = tx.times.now(namespace, now)
    gates = Gates(tx, namespace)
    entered = [_enter(tx, namespace, gates.made(each.gate), each, at) for each in entries]
    gates.store(at)
    return entered


def _enter(tx: Transaction, namespace: Namespace, gate: Gate, entry: Entry, now: int) -> Entered:
    gate.clear(now)
    gate.places = entry.places
    token = gate.place(entry.holder)
    if token is not None:
        gate.renew(entry.holder, now + entry.lease)
        return Entered(token_text(token))
    waiter = None if entry.waiter is None else gate.waiter(entry.waiter)
    if gate.admits(waiter):
        if waiter is not None:
            gate.stop_waiting(waiter)
        token = tx.times.next_token(namespace, now)
        gate.take(entry.holder, token, now + entry.lease)
        return Entered(token_text(token))
    free_in = gate.free_in(now) if entry.is_told else None
    if entry.waiter is None:
        return Entered(None, None, free_in)
    if waiter is None:
        gate.wait(entry.waiter, entry.asks, now)
        return Entered(None, now, free_in)
    gate.wait_on(waiter, entry.asks, now)
    return Entered(None, waiter[1], free_in)


def keep(tx: Transaction, namespace: Namespace, held: Sequence[Held], lease: int, now: int | None) -> list[bool]:
    at = tx.times.now(namespace, now)
    gates = Gates(tx, namespace)
    kept = []
    for each in held:
        gate = gates.find(each.gate)
        token = token_number(each.token or "")
        kept.append(gate is not None and gate.keep(each.holder, token, at + lease))
    gates.store(at)
    return kept


def leave(tx: Transaction, namespace: Namespace, held: Sequence[Held], now: int | None) -> Left:
    at = tx.times.now(namespace, now)
    gates = Gates(tx, namespace)
    left = Left([], [])
    for each in held:
        gate = gates.find(each.gate)
        if gate is not None:
            gate.drop_silent(at)
        left.answers.append(gate is not None and _leave(gate, each))
        if gate is not None:
            left.called.extend(Called(each.gate, waiter) for waiter in gate.call(at, MAX_BATCH))
    gates.store(at)
    return left


def _leave(gate: Gate, held: Held) -> bool:
    if held.token is not None:
        return gate.free(held.holder, token_number(held.token))
    waiter = gate.waiter(held.holder)
    if waiter is not None:
        gate.stop_waiting(waiter)
    return waiter is not None


def recall(tx: Transaction, namespace: Namespace, limit: int, now: int | None) -> Recalled:
    at = tx.times.now(namespace, now)
    called: list[Called] = []
    for name, gate in Gates(tx, namespace).to_recall(at, MAX_BATCH):
        if len(called) < limit:
            called += [Called(name, waiter) for waiter in _recall(gate, at, limit - len(called))]
            gate.store(at)
    _forget_rates(tx, namespace, at)
    firsts = [first for first in tx.sql.one("first_recall", {"space": namespace.name}) if first is not None]
    next_at = min(firsts, default=None)
    return Recalled(called, next_at, next_at is not None and next_at <= at)


def _recall(gate: Gate, now: int, limit: int) -> list[str]:
    gate.clear(now)
    named = gate.name_again(now, limit)
    return named + gate.call(now, limit - len(named))


def _forget_rates(tx: Transaction, namespace: Namespace, now: int) -> None:
    """Those of which nothing counts any more."""
    for (name,) in tx.sql.all("rates_to_forget", {"space": namespace.name, "now": now, "limit": MAX_BATCH}):
        tx.sql.run("forget_instants", {"space": namespace.name, "name": name, "before": NEVER})
        tx.sql.run("forget_rate", {"space": namespace.name, "name": name})


def spend(tx: Transaction, namespace: Namespace, spends: Sequence[Spend], now: int | None) -> list[Spent]:
    at = tx.times.now(namespace, now)
    return [_spend(tx, namespace, each, at) for each in spends]


def _spend(tx: Transaction, namespace: Namespace, spend: Spend, now: int) -> Spent:
    name = {"space": namespace.name, "name": spend.gate}
    rate = Rate(spend.count, spend.window)
    row = tx.sql.one("rate", name)
    spending = Spending(*rate) if row is None else _decode(row[0])
    if spend.holder is not None:
        taken = [_reserve(tx, name, spending, rate, spend.holder, now)]
        next_at = spending.take(rate, 0, now, ahead=False)[1]
    else:
        taken, next_at = spending.take(rate, spend.want, now, ahead=False)
    if taken or row is not None:  # without an instant, it may have got another rate
        tx.sql.run("keep_rate", {**name, "next": spending.over(), "spending": _encode(spending)})
    return Spent(taken, next_at, now)


def _reserve(tx: Transaction, name: dict[str, str], spending: Spending, rate: Rate, holder: str, now: int) -> int:
    tx.sql.run("forget_instants", {**name, "before": now - KEPT})
    kept = tx.sql.one("kept_instant", {**name, "holder": holder})
    at = spending.reserve(rate, None if kept is None else kept[0], now)
    if at > now:
        tx.sql.run("keep_instant", {**name, "holder": holder, "at": at})
    elif kept is not None:
        tx.sql.run("drop_instant", {**name, "holder": holder})
    return at
