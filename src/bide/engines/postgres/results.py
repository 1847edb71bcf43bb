"""What each verb of kept results asks of the server, and how its answer is read."""

from collections.abc import Mapping, Sequence
from typing import Any

from bide.engines.postgres.rows import numbers
from bide.engines.results import Arrival, Dependent, Expected, Follow, Kept, Result

CALLS: Mapping[str, str] = {
    "expect": "select {schema}.expect_results(%s::{text}, %s::bigint[], %s, %s)",
    "fulfil": "select * from {schema}.fulfil_results(%s::{text}, %s::bigint[], %b::{bytea}, %s::{text}, %s)",
    "read": "select * from {schema}.read_results(%s::{text}, %s)",
    "depend": "select {schema}.depend(%s::{text}, %s::{text}, %s::bigint[], %s)",
    "follow": "select * from {schema}.follow(%s::{text}, %s, %s)",
    "arrive": "select * from {schema}.arrive(%s::{text}, %s::{text}, %s)",
}
"""The server's functions, one for each verb."""


def expect_args(expected: Sequence[Expected]) -> list[Any]:
    return [[each.id for each in expected], numbers([each.until for each in expected])]


def fulfil_args(kept: Sequence[Kept]) -> list[Any]:
    return [
        [each.id for each in kept],
        numbers([each.lasts for each in kept]),
        [each.value for each in kept],
        [each.token for each in kept],
    ]


def followers_of(many: int, rows: Sequence[Any]) -> list[list[str]]:
    found: list[list[str]] = [[] for _ in range(many)]
    for place, dependent in rows:
        found[place - 1].append(dependent)
    return found


def results_of(many: int, rows: Sequence[Any]) -> list[Result | None]:
    found: list[Result | None] = [None] * many
    for place, done, value in rows:
        found[place - 1] = Result(done=done, value=value)
    return found


def depend_args(dependents: Sequence[Dependent]) -> list[Any]:
    pairs = [(each, other) for each in dependents for other in each.on]
    return [[each.id for each, _ in pairs], [other for _, other in pairs], numbers([each.until for each, _ in pairs])]


def followed_of(follows: Sequence[Follow], rows: Sequence[Any]) -> list[bool | None]:
    found: list[bool | None] = [None] * len(follows)
    for place, done in rows:
        found[place - 1] = done
    return found


def arrive_args(arrivals: Sequence[Arrival]) -> list[Any]:
    return [[each.dependent for each in arrivals], [each.on for each in arrivals]]


def ready_of(many: int, rows: Sequence[Any]) -> list[bool]:
    ready = {place for (place,) in rows}
    return [place in ready for place in range(1, many + 1)]
