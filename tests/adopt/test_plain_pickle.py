"""Pickles are read, never run: plain data comes out as it was, and all else is refused."""

import contextlib
import os
import pickle
from collections import OrderedDict
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bide.adopt.plain_pickle import plain
from bide.adopt.source import UnreadableEntry

leaves = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
values = st.recursive(
    leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner), max_leaves=40
)


@given(values, st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_plain_data_comes_out_as_it_was(value: Any, protocol: int) -> None:
    assert plain(pickle.dumps(value, protocol)) == value


def is_plain(value: Any) -> bool:
    """Whether it is made of types of Python alone, which call nothing."""
    if isinstance(value, dict):
        return all(is_plain(each) for pair in value.items() for each in pair)
    if isinstance(value, list | tuple | set | frozenset):
        return all(map(is_plain, value))
    return value is None or type(value) in (bool, int, float, str, bytes, bytearray)


@given(st.binary())
def test_any_bytes_are_data_or_are_refused(content: bytes) -> None:
    with contextlib.suppress(UnreadableEntry):
        assert is_plain(plain(content))


@given(values, st.data())
def test_a_damaged_pickle_is_data_or_is_refused(value: Any, data: st.DataObject) -> None:
    content = bytearray(pickle.dumps(value))
    content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(UnreadableEntry):
        assert is_plain(plain(bytes(content)))


class Calls:
    """Runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("unpickled",)


@pytest.mark.parametrize("value", [Calls(), [Calls()], datetime.now(UTC), OrderedDict(a=1), {1, 2}, b"bytes", 1j, Calls])
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_what_is_no_plain_data_is_refused(value: Any, protocol: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnreadableEntry, match="objects of Python"):
        plain(pickle.dumps(value, protocol))
    assert not os.path.exists("unpickled")


def test_what_grows_without_end_when_it_is_written_out_is_refused() -> None:
    value: Any = ["x" * 100]
    for _ in range(60):
        value = [value, value]
    with pytest.raises(UnreadableEntry, match="too large"):
        plain(pickle.dumps(value))
    value.append(value)
    with pytest.raises(UnreadableEntry, match="can't be read"):
        plain(pickle.dumps(value))


@pytest.mark.parametrize("protocol", [0, pickle.HIGHEST_PROTOCOL])
@pytest.mark.parametrize("value", [float("inf"), -float("inf"), float("nan")])
def test_numbers_that_json_does_not_have_are_refused(value: float, protocol: int) -> None:
    with pytest.raises(UnreadableEntry, match="JSON can't express"):
        plain(pickle.dumps([value], protocol))
