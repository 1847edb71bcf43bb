"""Handlers whose type hints are text, and name what is defined further down or inside another name."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any


def pack(parcel: Parcel, when: datetime | None = None, more: Sequence[Parcel] = (), *, marks: Mapping[int, str]) -> None:
    """Told apart from its neighbours by `packed`."""
    packed.append((parcel, when, more, marks))


@dataclasses.dataclass
class Parcel:
    order: int
    inside: Parcel | None = None


packed: list[Any] = []
