"""A worker reads arguments from JSON in one step where it can, and they are the same as in two."""

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import pytest

from bide.core.codec import JSON
from bide.errors import BadBody
from bide.queue.tasks.arguments import Arguments

PLAIN = [
    int, float, str, bool, bytes, None, Any, date, datetime, time, timedelta, UUID, list, dict, list[int], list[Any], set[int],
    frozenset[str], tuple[int, ...], tuple[int, str], dict[str, int], dict[int, str], dict[str, Any], int | float, str | None,
    list[int | str] | None,
]  # fmt: skip
OTHERS = [Decimal, Decimal | None, list[Decimal], msgspec.Raw, dict[str, list[msgspec.Raw]]]
VALUES = [
    "0", "-0", "-0.0", "1", "1.0", "1e2", "1.5", "0.1234567890123456789012345", "1e400", "1e-400", "9007199254740993.0",
    "18446744073709551616", "123456789012345678901234567890", "true", "null", '""', '"a"', '"1"', '"\\ud83d\\ude00"',
    '"\\ud83d"', '"c2F0"', '"2030-01-15"', '"2030-01-15T12:30:00Z"', '"2030-01-15T12:30:00"', '"12:30:00"', '"PT5S"',
    '"12345678-1234-5678-1234-567812345678"', "[]", "[1]", "[1, 1]", "[1.0]", '[1, "a"]', '["a", "a"]', "{}", '{"a": 1}',
    '{"a": 1, "a": 2}', '{"1": "x"}', '{"01": "x"}', '{"a": [1e400]}', '{"a": {"b": [1.0, null]}}', "[[1]]", "}", "1 2",
]  # fmt: skip
BODIES = [
    "",
    "null",
    "[]",
    "{}",
    '{"value": 1, "value": "a"}',
    '{"value": 1, "other": 1}',
    '{"other": 1}',
    '{"\\u0076alue": 1}',
]


def of(hint: Any, *, default: bool = False) -> Arguments:
    def required(value: Any) -> None: ...
    def optional(value: Any = "its default") -> None: ...

    function: Callable[..., None] = optional if default else required
    function.__annotations__["value"] = hint
    return Arguments(function, "handle")


def outcome(read: Callable[[], Any]) -> str:
    """What became of it, with all types; -0.0 is not 0.0."""
    try:
        return repr(read())
    except (BadBody, msgspec.MsgspecError, UnicodeDecodeError) as error:
        return type(error).__name__


@pytest.mark.parametrize("default", [False, True], ids=["required", "with a default"])
@pytest.mark.parametrize("hint", [*PLAIN, *OTHERS], ids=str)
def test_what_is_read_in_one_step_is_what_is_read_in_two(hint: Any, default: bool) -> None:
    arguments = of(hint, default=default)
    in_one_step = 0
    for raw in [*(f'{{"value": {value}}}'.encode() for value in VALUES), *map(str.encode, BODIES), b'{"value": "\xff"}']:
        found = arguments.of_json(raw)
        if found is not None:
            in_one_step += 1
            assert repr(found) == outcome(lambda raw=raw: arguments.of_message(JSON.decode(raw))), raw  # type: ignore[misc]
    assert bool(in_one_step) == (hint in PLAIN)


@pytest.mark.parametrize("hint", PLAIN, ids=str)
def test_what_can_be_read_is_read_in_one_step(hint: Any) -> None:
    arguments = of(hint)
    for value in VALUES:
        raw = f'{{"value": {value}}}'.encode()
        readable = outcome(lambda raw=raw: arguments.of_message(JSON.decode(raw))).startswith("{")  # type: ignore[misc]
        assert (arguments.of_json(raw) is not None) == readable, raw


def test_further_arguments_and_unknown_ones_are_read_in_two_steps() -> None:
    def takes_more(value: int, **rest: int) -> None: ...

    assert Arguments(takes_more, "handle").of_json(b'{"value": 1, "other": 2}') is None
    ignoring = Arguments(of(int)._function, "handle", ignore_unknown=True)
    assert ignoring.of_json(b'{"value": 1, "other": 2}') is None
    assert ignoring.of_message({"value": 1, "other": 2}) == {"value": 1}


def test_a_default_is_the_functions_own() -> None:
    assert of(int, default=True).of_json(b"{}") == {}


def test_hints_that_can_not_be_looked_up_are_told_in_the_second_step() -> None:
    assert of("Nowhere").of_json(b'{"value": 1}') is None
