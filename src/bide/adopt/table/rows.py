"""A row of a polled table, as the message that it becomes."""

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from bide.adopt.shape import Shape, due_ms
from bide.adopt.source import UnreadableEntry
from bide.engines.base import NewMessage

_DIGITS = 300  # of a whole number


class Columns(msgspec.Struct, frozen=True, kw_only=True):
    """Which columns of the query have a meaning. `body` None: the column of this name if there is one, or else all but the
    due time and the topic."""

    id: str = "id"
    due: str = "due"
    body: str | None = None
    unit: str = "auto"  # of due times that are numbers
    utc: str = "{} at time zone 'UTC'"  # how the database says that a column is in UTC


def plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row as JSON can hold it, in words that the database reads again. JSON in it is msgspec.Raw. Raises Unreadable."""
    return {name: _plain(name, value) for name, value in row.items()}


def known(id: Any) -> bytes:
    """By what a row is known in this run: the same for an id as the database gives it and as `plain` does."""
    try:
        return msgspec.json.encode(_plain("id", id))
    except (UnreadableEntry, ValueError, OverflowError):
        return repr(id).encode()


def message(row: Mapping[str, Any], columns: Columns, shape: Shape) -> NewMessage:
    """What a row becomes, given as `plain` gives it. Raises Unreadable."""
    if row.get(columns.id) is None:
        raise UnreadableEntry(f"has no {columns.id}: select it, or name the column with --id")
    if columns.due not in row:
        raise UnreadableEntry(f"has no {columns.due}: select it, or name the column with --due")
    due = _due(row[columns.due], columns)
    try:
        whole = msgspec.json.encode(row)
    except (ValueError, OverflowError):
        raise UnreadableEntry("has a number or a text that JSON can't express: cast it in the query, or leave it out") from None
    topic, key = shape.names(whole)
    return shape.sealed(_body(row, columns, shape), due, topic=topic, key=key)


def _body(row: Mapping[str, Any], columns: Columns, shape: Shape) -> bytes:
    name = columns.body or ("body" if "body" in row else None)
    if name is None:
        return msgspec.json.encode(
            {column: each for column, each in row.items() if column not in (columns.due, shape.topic_field)}
        )
    if name not in row:
        raise UnreadableEntry(f"has no {name}: select it, or name another column with --body")
    value = row[name]
    if not isinstance(value, str):
        return msgspec.json.encode(value)
    try:
        msgspec.json.decode(value)
    except (msgspec.DecodeError, RecursionError):
        return msgspec.json.encode(value)  # text that is not JSON is a text
    return value.encode()


def _due(value: Any, columns: Columns) -> int:
    if isinstance(value, str) and ("T" in value or ":" in value):
        return _instant(value, columns)
    if isinstance(value, bool) or value is None:
        raise UnreadableEntry("has no due time")
    try:
        return due_ms(value if isinstance(value, int) else float(value), columns.unit)
    except (TypeError, ValueError, OverflowError):
        raise UnreadableEntry("has a due time that is neither a timestamp nor a number") from None


def _instant(text: str, columns: Columns) -> int:
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise UnreadableEntry("has a due time that is neither a timestamp nor a number") from None
    if when.tzinfo is None:
        said = f"{columns.utc.format(columns.due)} as {columns.due}"
        raise UnreadableEntry(f"has a due time without a time zone: say which in the query, as in {said}")
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return -((-since.days * 86_400_000_000 - since.seconds * 1_000_000 - since.microseconds) // 1000)


def _plain(name: str, value: Any) -> Any:
    if value is None or isinstance(value, str | int | msgspec.Raw):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _no_number(name)
        return value
    if isinstance(value, datetime | date):
        return value.isoformat()
    if isinstance(value, Decimal):
        return _number(name, value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, list):
        return [_plain(name, each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(name, each) for key, each in value.items()}
    raise UnreadableEntry(
        f"has bytes or another type in {name} that JSON does not have: cast it in the query, as in {name}::text"
    )


def _number(name: str, value: Decimal) -> int | float:
    if value.is_finite():
        if value.adjusted() < _DIGITS and value == value.to_integral_value():
            return int(value)
        if math.isfinite(float(value)):
            return float(value)
    raise _no_number(name)


def _no_number(name: str) -> UnreadableEntry:
    return UnreadableEntry(f"has a number in {name} that JSON does not have: cast it in the query, as in {name}::text")
