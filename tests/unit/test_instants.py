"""An aware datetime arrives as the same instant, whatever its UTC offset: JSON tells whole minutes of it only."""

from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta, timezone
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bide import BadBody
from bide.core.codec import JSON, encode

offsets = st.timedeltas(timedelta(hours=-23, minutes=-58), timedelta(hours=23, minutes=58)).map(timezone)
whole = st.integers(-1_438, 1_438).map(lambda minutes: timezone(timedelta(minutes=minutes)))
zones = offsets | whole | st.sampled_from([UTC, *map(ZoneInfo, ("Europe/Berlin", "Africa/Monrovia", "Asia/Kolkata"))])
instants = st.datetimes(datetime(2, 1, 1), datetime(9998, 1, 1), timezones=zones)
HALF = timezone(timedelta(hours=5, minutes=30, seconds=15))


@dataclass
class Line:
    at: datetime
    many: dict[str, list[datetime]]


@given(at=instants)
@example(at=datetime(1890, 1, 1, tzinfo=ZoneInfo("Europe/Berlin")))
@example(at=datetime(1960, 1, 1, tzinfo=ZoneInfo("Africa/Monrovia")))
@example(at=datetime(2026, 1, 1, tzinfo=timezone(timedelta(microseconds=-5))))
def test_the_instant_is_the_same_wherever_the_datetime_is(at: datetime) -> None:
    for body in (at, [at], {"a": {"b": (1, at)}}, {at: 1}, Line(at, {"k": [at, at]})):
        told = JSON.decode(JSON.encode(body))
        for text in _texts(told):
            assert datetime.fromisoformat(text).astimezone(UTC) == at.astimezone(UTC)


@given(at=instants)
def test_by_its_type_too(at: datetime) -> None:
    found = msgspec.convert(JSON.decode(JSON.encode(Line(at, {"k": [at]}))), Line)

    assert {each.astimezone(UTC) for each in (found.at, *found.many["k"])} == {at.astimezone(UTC)}


def test_one_that_json_can_tell_is_told_as_it_is() -> None:
    at = datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))

    assert JSON.encode({"at": at, "text": '12:00:00Z"'}) == b'{"at":"2026-01-01T00:00:00-03:30","text":"12:00:00Z\\""}'


def test_a_time_with_such_an_offset_is_refused() -> None:
    with pytest.raises(BadBody, match=r"a time in UTC\+05:30:15, whose UTC offset is 5:30:15 .* Give a datetime"):
        encode(JSON, {"at": time(12, tzinfo=HALF)}, 1_000)

    assert JSON.encode(time(12, tzinfo=UTC)) == b'"12:00:00Z"'


def test_a_model_of_pydantic_with_such_an_offset_is_refused() -> None:
    pydantic = pytest.importorskip("pydantic")
    model: Any = pydantic.create_model("Visit", at=(datetime, ...))

    with pytest.raises(BadBody, match="whose UTC offset is 5:30:15 and not of whole minutes"):
        encode(JSON, {"visit": model(at=datetime(2026, 1, 1, tzinfo=HALF))}, 1_000)
    assert b"+05:30" in encode(JSON, model(at=datetime(2026, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30)))), 1_000)


def _texts(told: Any) -> list[str]:
    if isinstance(told, dict):
        keys = [each for each in told if "T" in each]
        return keys + [text for each in told.values() for text in _texts(each)]
    if isinstance(told, list):
        return [text for each in told for text in _texts(each)]
    return [told] if isinstance(told, str) else []
