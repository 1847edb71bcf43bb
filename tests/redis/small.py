"""Scripts whose slots, rows and buckets are small, so that a short history meets every border."""

import hashlib
import itertools
import re
from collections.abc import Mapping
from typing import Any

import pytest

from bide.engines.base import Settings
from bide.engines.redis import source
from bide.engines.redis.aio import calls as aio
from bide.engines.redis.script import Script, scripts
from bide.engines.redis.sync import calls as sync
from bide.engines.registry import Source
from tests.model.runner import MakeSource

SMALL = {
    "FEW": 2,
    "SOME": 3,
    "NUMBERS": 32,
    "SAMPLE": 2,
    "BUCKET": 2,
    "ROW": 8,
    "WAITING": 3,
    "ENOUGH": 8,
    "CROWDED": 2,
    "TAGS": 8,
    "GROUP": 2,
    "ALIKE": 2,
    "OVERFULL": 46,
    "EFFORT": 6,
    "FREED": 2,
    "PARTS": 3,
}


def smaller(text: str, small: Mapping[str, int], found: set[str]) -> str:
    """A script with other numbers behind those names."""

    def line(match: re.Match[str]) -> str:
        names, values = match[1].split(", "), match[2].split(", ")
        found.update(set(names) & set(small))
        other = ", ".join(str(small.get(name, value)) for name, value in zip(names, values, strict=True))
        return f"local {match[1]} = {other}"

    return re.sub(r"\blocal ([A-Z]+(?:, [A-Z]+)*) = (\d+(?:, \d+)*)", line, text)


def use_small_scripts(patch: pytest.MonkeyPatch, bounds: Mapping[str, int] = SMALL) -> None:
    found: set[str] = set()
    changed: dict[str, Script] = {}
    for name, script in scripts().items():
        text = smaller(script.text, bounds, found)
        changed[name] = Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
    assert found == set(bounds), "the scripts have other names for their bounds"

    def small() -> Mapping[str, Script]:
        return changed

    patch.setattr(aio, "scripts", small)
    patch.setattr(sync, "scripts", small)


def places(url: str) -> MakeSource:
    numbers = itertools.count()

    def make(**settings: Any) -> Source:
        return source(Settings(url=url, namespace=f"check-{next(numbers)}", **settings))

    return make
