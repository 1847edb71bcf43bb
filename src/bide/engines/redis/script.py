"""The scripts that the server runs, one a verb.

A file of `scripts` holds one script or several: each begins with a line `-- script: name`, and what stands before the first is
the beginning of all. A line `-- include: a b` stands for the files of `parts` with these names.
"""

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import NamedTuple

_SCRIPT = re.compile(r"^-- script: (\w+)\n", re.MULTILINE)
_INCLUDE = re.compile(r"^-- include: (.+)\n", re.MULTILINE)
_TOLD = re.compile(r"--[^\n]*|'[^'\n]*'")  # comments and strings
_FUNCTION = re.compile(
    r"^local function (?P<name>\w+)\((?:[^\n]* end(?: *--[^\n]*)?\n|.*?\nend\n)", re.MULTILINE | re.DOTALL
)  # in one line, or up to an `end` that is not indented
_VALUES = re.compile(
    r"^local (?P<name>\w+(?:, \w+)*) = (?:\{\}|(?:[^\n({]|\b(?:number|floor)\()+)(?: *--[^\n]*)?\n", re.MULTILINE
)  # which only their names make use of: no calls but of these two


class Script(NamedTuple):
    name: str
    text: str
    sha: str


@functools.cache
def scripts() -> Mapping[str, Script]:
    return {name: script(name, text) for name, text in sources()}


def sources() -> Iterator[tuple[str, str]]:
    """The name and the text of each script, with all that it includes."""
    folder = files(__package__) / "scripts"

    def part(name: str) -> str:
        return (folder / "parts" / f"{name}.lua").read_text(encoding="utf-8")

    def included(found: re.Match[str]) -> str:
        return "\n".join(map(part, found[1].split()))

    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if file.name.endswith(".lua"):
            beginning, *named = _SCRIPT.split(file.read_text(encoding="utf-8"))
            for name, text in zip(named[::2], named[1::2], strict=True):
                yield name, _INCLUDE.sub(included, beginning + text)


def script(name: str, text: str) -> Script:
    text = without_unused(text) + "end)()\n"  # of the function that begin.lua opens
    text = re.sub(r"^may\(\)$", f"may({', '.join(map(repr, commands(text)))})", text, flags=re.MULTILINE)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def without_unused(text: str) -> str:
    """The script without the functions and values that it does not use: each costs time at every run."""
    while True:
        named = Counter(re.findall(r"(?<![.\w])\w+", _TOLD.sub("", text)))
        found = [*_FUNCTION.finditer(text), *_VALUES.finditer(text)]
        unused = [each.span() for each in found if all(named[name] == 1 for name in each["name"].split(", "))]
        if not unused:
            return text
        for start, end in sorted(unused, reverse=True):
            text = text[:start] + text[end:]


def commands(text: str) -> list[str]:
    """The commands that a script calls."""
    return sorted(set(re.findall(r"\bcall\('([A-Z]+)'", text)))
