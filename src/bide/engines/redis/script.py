"""The scripts that the server runs, one a verb."""

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from bide.engines import assets

_FUNCTION = re.compile(
    r"^local function (?P<name>\w+)\((?:[^\n]* end(?: *--[^\n]*)?\n|.*?\nend\n)", re.MULTILINE | re.DOTALL
)  # on a line of its own, or up to an `end` that is not indented


class Script(NamedTuple):
    name: str
    text: str
    sha: str


@functools.cache
def scripts() -> Mapping[str, Script]:
    return {name: script(name, text) for name, text in assets.scripts("bide.engines.redis").items()}


def script(name: str, text: str) -> Script:
    text = without_unused(text) + "end)()\n"  # of the function that begin.lua opens
    text = re.sub(r"^may\(\)$", f"may({', '.join(map(repr, commands(text)))})", text, flags=re.MULTILINE)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def without_unused(text: str) -> str:
    """A script without the functions of its parts that it does not name: each costs time whenever the script runs."""
    while True:
        named = Counter(re.findall(r"\w+", re.sub(r"--[^\n]*", "", text)))
        unused = [found for found in _FUNCTION.finditer(text) if named[found["name"]] == 1]
        if not unused:
            return text
        for found in reversed(unused):
            text = text[: found.start()] + text[found.end() :]


def commands(text: str) -> list[str]:
    """All that a script calls."""
    return sorted(set(re.findall(r"\bcall\('([A-Z]+)'", text)))
