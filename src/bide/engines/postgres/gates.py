"""What each verb of gates asks of the server, and how its answer is read."""

from collections.abc import Mapping, Sequence
from typing import Any

from bide.engines.gates import AGAIN_MS, TURN_MS, Called, Entered, Entry, Held, Left, Spend, Spent
from bide.engines.postgres.rows import numbers, token_number

CALLS: Mapping[str, str] = {
    "enter": "select * from {schema}.admit(%s::{text}, %s::{text}, %s::bigint[], %s::bigint[], %s::{text}, %s::bigint[], %s)",
    "keep": "select * from {schema}.keep(%s::{text}, %s::{text}, %s::bigint[], %s, %s)",
    "leave": "select * from {schema}.leave(%s, %s::{text}, %s::{text}, %s::bigint[], %s, %s, %s)",
    "spend": "select * from {schema}.spend(%s::{text}, %s::bigint[], %s::bigint[], %s::bigint[], %s::{text}, %s)",
}
"""The server's functions, one for each verb."""

TURNS = (TURN_MS, AGAIN_MS)


def entry_args(entries: Sequence[Entry]) -> list[Any]:
    return [
        [each.gate for each in entries],
        [each.holder for each in entries],
        numbers([each.lease for each in entries]),
        numbers([each.places for each in entries]),
        [each.waiter for each in entries],
        numbers([each.asks for each in entries]),
    ]


def entered_of(rows: Sequence[Any]) -> list[Entered]:
    """In the order of the batch; the server answers in that of the gates."""
    return [Entered(None if token is None else f"{token:019d}", since, free_in) for _, token, since, free_in in sorted(rows)]


def held_args(held: Sequence[Held]) -> list[Any]:
    return [
        [each.gate for each in held],
        [each.holder for each in held],
        numbers([None if each.token is None else token_number(each.token) for each in held]),
    ]


def kept_of(held: Sequence[Held], rows: Sequence[Any]) -> list[bool]:
    kept = set(rows)
    return [(each.gate, each.holder, token_number(each.token or "")) in kept for each in held]


def left_of(rows: Sequence[Any]) -> Left:
    """Answers in the order of the batch, and who was called by each in turn."""
    rows = sorted(rows, key=lambda row: row[0])
    answers = [held for _, held, gate, _ in rows if gate is None]
    return Left(answers, [Called(gate, waiter) for _, _, gate, waiter in rows if gate is not None])


def spend_args(spends: Sequence[Spend]) -> list[Any]:
    return [
        [each.gate for each in spends],
        numbers([each.count for each in spends]),
        numbers([each.window for each in spends]),
        numbers([each.want for each in spends]),
        [each.holder for each in spends],
    ]


def spent_of(rows: Sequence[Any]) -> list[Spent]:
    spent: list[Spent] = []
    taken: list[int] = []
    for _, at, many, now in rows:
        if many is None:
            spent.append(Spent(taken, at, now))
            taken = []
        else:
            taken += [at] * many
    return spent
