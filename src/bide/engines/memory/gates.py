"""The verbs of gates in memory, as functions over a store."""

from collections.abc import Sequence

from bide.core.rate import KEPT, Rate, Spending
from bide.engines.base import MAX_BATCH
from bide.engines.gates import AGAIN_MS, Called, Entered, Entry, Held, Left, Spend, Spent
from bide.engines.memory.gate import GatePlace, GateStore, MemoryGate
from bide.engines.memory.store import Store


def enter(store: Store, entries: Sequence[Entry], now: int | None) -> list[Entered]:
    with store.alone(), store:
        at = store.now(now)
        return [_enter(store.gates, each, at) for each in entries]


def _enter(gates: GateStore, entry: Entry, now: int) -> Entered:
    gate = gates.gates.setdefault(entry.gate, MemoryGate())
    gate.clear(now)
    gate.places = entry.places
    waiter = entry.waiter
    turn = None if waiter is None else gate.called.get(waiter)
    place = gate.holders.get(entry.holder)
    entered = Entered(None)
    if place is not None:
        gate.holders[entry.holder] = GatePlace(place.token, now + entry.lease)
        entered = Entered(place.token)
    elif turn is not None or gate.admits(waiter):
        if waiter is not None:
            gate.called.pop(waiter, None)
            gate.stop_waiting(waiter)
        token = gates.token(now)
        gate.holders[entry.holder] = GatePlace(token, now + entry.lease)
        entered = Entered(token)
    elif waiter is not None:
        entered = Entered(None, gate.wait(waiter, entry.asks, now), gate.free_in(now) if entry.is_told else None)
    else:
        entered = Entered(None, None, gate.free_in(now))
    gates.changed(entry.gate, now)
    return entered


def keep(store: Store, held: Sequence[Held], lease: int, now: int | None) -> list[bool]:
    with store.alone(), store:
        at = store.now(now)
        return [_keep(store.gates, each, lease, at) for each in held]


def _keep(gates: GateStore, held: Held, lease: int, now: int) -> bool:
    gate = gates.gates.get(held.gate)
    place = None if gate is None else gate.holders.get(held.holder)
    if gate is None or place is None or place.token != held.token:
        return False
    gate.holders[held.holder] = GatePlace(place.token, now + lease)
    gates.changed(held.gate, now)
    return True


def leave(store: Store, held: Sequence[Held], now: int | None) -> Left:
    with store.alone(), store:
        at = store.now(now)
        left = Left([], [])
        for each in held:
            gate = store.gates.gates.get(each.gate)
            if gate is not None:
                gate.drop_silent(at)
            left.answers.append(gate is not None and _leave(gate, each))
            if gate is not None:
                left.called.extend(Called(each.gate, waiter) for waiter in gate.call(at, MAX_BATCH))
                store.gates.changed(each.gate, at)
        return left


def _leave(gate: MemoryGate, held: Held) -> bool:
    if held.token is None:
        return gate.stop_waiting(held.holder) is not None or gate.called.pop(held.holder, None) is not None
    place = gate.holders.get(held.holder)
    if place is None or place.token != held.token:
        return False
    del gate.holders[held.holder]
    return True


def recall(gates: GateStore, limit: int, now: int) -> tuple[list[Called], int | None]:
    """Who is called, and in how many ms there is something to do again."""
    called: list[Called] = []
    while (first := gates.first()) is not None and first[0] <= now and len(called) < limit:
        kind, name = first[1]
        if kind == "rate":
            gates.forget_rate(name)
        else:
            called += [Called(name, waiter) for waiter in _recall(gates.gates[name], now, limit - len(called))]
            gates.changed(name, now)
    return called, None if first is None else max(0, first[0] - now)


def _recall(gate: MemoryGate, now: int, limit: int) -> list[str]:
    gate.clear(now)
    named = [waiter for waiter, turn in gate.called.items() if turn.again <= now][:limit]
    for waiter in named:
        gate.called[waiter] = gate.called[waiter]._replace(again=now + AGAIN_MS)
    return named + gate.call(now, limit - len(named))


def spend(store: Store, spends: Sequence[Spend], now: int | None) -> list[Spent]:
    with store.alone(), store:
        at = store.now(now)
        return [_spend(store.gates, each, at) for each in spends]


def _spend(gates: GateStore, spend: Spend, now: int) -> Spent:
    rate = Rate(spend.count, spend.window)
    spending = gates.rates.get(spend.gate) or Spending(*rate)
    if spend.holder is not None:
        return _reserve(gates, spend.gate, spending, rate, spend.holder, now)
    taken, next_at = spending.take(rate, spend.want, now, ahead=False)
    if taken or spend.gate in gates.rates:  # it may be another rate than before
        gates.keep_rate(spend.gate, spending)
    return Spent(taken, next_at, now)


def _reserve(gates: GateStore, name: str, spending: Spending, rate: Rate, holder: str, now: int) -> Spent:
    reserved = gates.reserved.setdefault(name, {})
    if len(reserved) > MAX_BATCH and len(reserved) > 2 * gates.kept.get(name, 0):
        for other in [each for each, at in reserved.items() if at < now - KEPT]:
            del reserved[other]
        gates.kept[name] = len(reserved)
    at = spending.reserve(rate, reserved.pop(holder, None), now)
    if at > now:
        reserved[holder] = at
    gates.keep_rate(name, spending)
    return Spent([at], spending.take(rate, 0, now, ahead=False)[1], now)
