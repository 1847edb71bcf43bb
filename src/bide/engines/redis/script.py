"""The scripts that the server runs, one a verb."""

import functools
import hashlib
import re
from collections.abc import Mapping
from typing import NamedTuple

from bide.engines import assets


class Script(NamedTuple):
    name: str
    text: str
    sha: str


@functools.cache
def scripts() -> Mapping[str, Script]:
    return {name: script(name, text) for name, text in assets.scripts("bide.engines.redis").items()}


def script(name: str, text: str) -> Script:
    text = re.sub(r"^may\(\)$", f"may({', '.join(map(repr, commands(text)))})", text, flags=re.MULTILINE)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def commands(text: str) -> list[str]:
    """All that a script calls."""
    return sorted(set(re.findall(r"\bcall\('([A-Z]+)'", text)))
