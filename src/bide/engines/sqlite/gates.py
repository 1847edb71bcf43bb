"""The verbs of gates in a transaction, and who is in, is called and waits. Counts are kept: no verb counts rows."""

from collections.abc import Sequence
from typing import Any

import msgspec

from bide.core.rate import KEPT, Rate, Spending
from bide.engines.base import MAX_BATCH
from bide.engines.gates import AGAIN_MS, TURN_MS, Called, Entered, Entry, Held, Left, Spend, Spent
from bide.engines.sqlite.rows import token_number, token_text
from bide.engines.sqlite.transaction import FileNamespace, Transaction

NEVER = 2**62


class GateRow:
    """One row of a gate, as it is to be stored."""

    __slots__ = ("_sql", "_stored", "asks_by", "ends", "id", "next", "places", "taken", "waiting")

    def __init__(self, tx: Transaction, row: Sequence[int]) -> None:
        self._sql = tx.sql
        self._stored = row
        self.id: int
        self.places: int
        self.taken: int  # held, or kept for a waiter that was called
        self.waiting: int  # and not called
        self.ends: int  # no lease and no turn ends before
        self.next: int  # nothing is to be recalled before
        self.asks_by: int  # no waiter has to ask again before
        self.id, self.places, self.taken, self.waiting, self.ends, self.next, self.asks_by = row

    def clear(self, now: int) -> None:
        """Take back what is over."""
        if self.ends <= now:
            ended = self._sql.run("ended_places", (self.id, now)).rowcount
            ended += self._sql.run("ended_turns", (self.id, now)).rowcount
            self.taken -= ended
            self.ends = self._first("first_end", {"gate": self.id})
        self.drop_silent(now)

    def drop_silent(self, now: int) -> None:
        """Those leave the line that had to ask again, and did not."""
        if self.asks_by <= now:
            self.waiting -= self._sql.run("drop_silent", (self.id, now)).rowcount
            self.asks_by = self._first("first_asking", (self.id,))

    def place(self, holder: str) -> int | None:
        """The token of a holder."""
        row = self._sql.one("place", (self.id, holder)) if self.taken else None
        return None if row is None else int(row[0])

    def renew(self, holder: str, until: int) -> None:
        self._sql.run("renew_place", (until, self.id, holder))
        self._ends_by(until)

    def keep(self, holder: str, token: int, until: int) -> bool:
        """False for a place that is lost."""
        kept = self._sql.run("keep_place", (until, self.id, holder, token)).rowcount == 1
        if kept:
            self._ends_by(until)
        return kept

    def take(self, holder: str, token: int, until: int) -> None:
        self._sql.run("take_place", (self.id, holder, token, until))
        self.taken += 1
        self._ends_by(until)

    def free(self, holder: str, token: int) -> bool:
        """False for a place that is lost."""
        freed = self._sql.run("free_place", (self.id, holder, token)).rowcount
        self.taken -= freed
        return freed == 1

    def waiter(self, name: str) -> Any:
        """Its number in the line, since when it waits, the end of its turn, and by when it has to ask again; or None."""
        return self._sql.one("waiter", (self.id, name)) if self.waiting or self.taken else None

    def admits(self, waiter: Any) -> bool:
        """Whether somebody may enter: called, or there is room and nobody before it."""
        if waiter is not None and waiter[2] is not None:
            return True
        if self.taken >= self.places:
            return False
        return not self.waiting or (waiter is not None and waiter[0] == self._sql.one("first_waiting", (self.id, 1))[0])

    def wait(self, name: str, asks: int | None, now: int) -> None:
        self._sql.run("wait", (self.id, name, now, None if asks is None else now + asks))
        self.waiting += 1
        self._asks_by(asks, now)

    def wait_on(self, waiter: Any, asks: int | None, now: int) -> None:
        """It asks again."""
        if asks is not None and (waiter[3] or 0) - now <= asks * 2 // 3:
            self._sql.run("note_asking", (now + asks, waiter[0]))
            self._asks_by(asks, now)

    def stop_waiting(self, waiter: Any) -> None:
        self._sql.run("stop_waiting", (waiter[0],))
        if waiter[2] is None:
            self.waiting -= 1
        else:
            self.taken -= 1

    def free_in(self, now: int) -> int | None:
        """The ms until the first place is free, whether it is held or kept for a waiter; what is over was cleared."""
        first = self._first("first_end", {"gate": self.id})
        return first - now if first < NEVER else None

    def call(self, now: int, most: int) -> list[str]:
        """Those whose turn has come."""
        room = min(most, self.places - self.taken)
        if not self.waiting or room <= 0:
            return []
        first = self._sql.all("first_waiting", (self.id, room))
        self._sql.run_many("call", [(now + TURN_MS, now + AGAIN_MS, number) for number, _ in first])
        self.waiting -= len(first)
        self.taken += len(first)
        self._ends_by(now + TURN_MS)
        self.next = min(self.next, now + AGAIN_MS)
        return [name for _, name in first]

    def name_again(self, now: int, most: int) -> list[str]:
        """Those who were called a while ago, and have not come."""
        late = self._sql.all("to_name_again", {"gate": self.id, "now": now, "limit": most})
        self._sql.run_many("name_again", [(now + AGAIN_MS, number) for number, _ in late])
        self.next = min(self.ends, self._first("first_again", (self.id,)))
        return [name for _, name in late]

    def store(self, now: int) -> None:
        """Forget the gate if it is empty."""
        if not self.taken and not self.waiting:
            self._sql.run("drop_gate", (self.id,))
            return
        if self.waiting and self.taken < self.places:
            self.next = min(self.next, now)
        row = (self.id, self.places, self.taken, self.waiting, self.ends, self.next, self.asks_by)
        if row != self._stored:
            self._sql.run("keep_gate", (*row[1:], self.id))

    def _asks_by(self, asks: int | None, now: int) -> None:
        if asks is not None:
            self.asks_by = min(self.asks_by, now + asks)

    def _ends_by(self, until: int) -> None:
        """Bounds only: what ends later than it did, as a place that is kept, is found when it is looked at."""
        self.ends = min(self.ends, until)
        self.next = min(self.next, until)

    def _first(self, name: str, values: Any) -> int:
        return min((at for at in self._sql.one(name, values) if at is not None), default=NEVER)


class GateRows:
    """Those of one verb: each is read once, and stored once."""

    __slots__ = ("_found", "_space", "_tx")

    def __init__(self, tx: Transaction, namespace: FileNamespace) -> None:
        self._tx = tx
        self._space = namespace.name
        self._found: dict[str, GateRow | None] = {}

    def find(self, name: str) -> GateRow | None:
        if name not in self._found:
            row = self._tx.sql.one("find_gate", {"space": self._space, "name": name})
            self._found[name] = None if row is None else GateRow(self._tx, row)
        return self._found[name]

    def made(self, name: str) -> GateRow:
        """A gate is made on first use."""
        gate = self.find(name)
        if gate is None:
            new = {"places": 0, "taken": 0, "waiting": 0, "ends": NEVER, "next": NEVER, "asks_by": NEVER}
            number = self._tx.sql.run("make_gate", {"space": self._space, "name": name, **new}).lastrowid or 0
            gate = self._found[name] = GateRow(self._tx, (number, *new.values()))
        return gate

    def to_recall(self, now: int, limit: int) -> list[tuple[str, GateRow]]:
        rows = self._tx.sql.all("gates_to_recall", {"space": self._space, "now": now, "limit": limit})
        return [(name, GateRow(self._tx, row)) for name, *row in rows]

    def store(self, now: int) -> None:
        for gate in self._found.values():
            if gate is not None:
                gate.store(now)


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Spending).decode


def enter(tx: Transaction, namespace: FileNamespace, entries: Sequence[Entry], now: int | None) -> list[Entered]:
    at = tx.times.now(namespace, now)
    gates = GateRows(tx, namespace)
    entered = [_enter(tx, namespace, gates.made(each.gate), each, at) for each in entries]
    gates.store(at)
    return entered


def _enter(tx: Transaction, namespace: FileNamespace, gate: GateRow, entry: Entry, now: int) -> Entered:
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


def keep(tx: Transaction, namespace: FileNamespace, held: Sequence[Held], lease: int, now: int | None) -> list[bool]:
    at = tx.times.now(namespace, now)
    gates = GateRows(tx, namespace)
    kept = []
    for each in held:
        gate = gates.find(each.gate)
        token = token_number(each.token or "")
        kept.append(gate is not None and gate.keep(each.holder, token, at + lease))
    gates.store(at)
    return kept


def leave(tx: Transaction, namespace: FileNamespace, held: Sequence[Held], now: int | None) -> Left:
    at = tx.times.now(namespace, now)
    gates = GateRows(tx, namespace)
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


def _leave(gate: GateRow, held: Held) -> bool:
    if held.token is not None:
        return gate.free(held.holder, token_number(held.token))
    waiter = gate.waiter(held.holder)
    if waiter is not None:
        gate.stop_waiting(waiter)
    return waiter is not None


def recall(tx: Transaction, namespace: FileNamespace, limit: int, now: int) -> tuple[list[Called], int | None]:
    """Who is called, and in how many ms there is something to do again."""
    called: list[Called] = []
    next_in = _next_in(tx, namespace, now)
    if next_in != 0 or limit == 0:
        return called, next_in
    for name, gate in GateRows(tx, namespace).to_recall(now, MAX_BATCH):
        if len(called) < limit:
            called += [Called(name, waiter) for waiter in _recall(gate, now, limit - len(called))]
            gate.store(now)
    _forget_rates(tx, namespace, now)
    return called, _next_in(tx, namespace, now)


def _next_in(tx: Transaction, namespace: FileNamespace, now: int) -> int | None:
    firsts = [first for first in tx.sql.one("first_recall", {"space": namespace.name}) if first is not None]
    return max(0, min(firsts) - now) if firsts else None


def _recall(gate: GateRow, now: int, limit: int) -> list[str]:
    gate.clear(now)
    named = gate.name_again(now, limit)
    return named + gate.call(now, limit - len(named))


def _forget_rates(tx: Transaction, namespace: FileNamespace, now: int) -> None:
    """Those of which nothing counts any more."""
    for (name,) in tx.sql.all("rates_to_forget", {"space": namespace.name, "now": now, "limit": MAX_BATCH}):
        tx.sql.run("forget_instants", {"space": namespace.name, "name": name, "before": NEVER})
        tx.sql.run("forget_rate", {"space": namespace.name, "name": name})


def spend(tx: Transaction, namespace: FileNamespace, spends: Sequence[Spend], now: int | None) -> list[Spent]:
    at = tx.times.now(namespace, now)
    return [_spend(tx, namespace, each, at) for each in spends]


def _spend(tx: Transaction, namespace: FileNamespace, spend: Spend, now: int) -> Spent:
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
