"""The scripts that the server runs, one a verb, and the commands that they call.

A file of `scripts` holds one script or several: each begins with a line `-- script: name`, and what stands before the first is
the beginning of all. A line `-- include: a b` stands for the parts with these names: each begins with a line `-- part: name`,
in a file of `parts` about one subject.

The script by which programs in other languages send is none of them, and bide never runs it: it checks and encodes as Python
does, and then runs `put_ruled`. In its files, those of `scripts/foreign`, a line `-- run: a` stands for one of the others.
"""

import functools
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.resources import files
from itertools import chain
from typing import NamedTuple

KEY = "KEY"  # stands for a key of ours

CALLS: Mapping[str, str] = {
    "eval": f"return 1 {KEY}",
    "evalsha": f"- 1 {KEY}",
    "get": KEY,
    "hdel": f"{KEY} -",
    "hget": f"{KEY} -",
    "hgetall": KEY,
    "hincrby": f"{KEY} - 1",
    "hkeys": KEY,
    "hlen": KEY,
    "hmget": f"{KEY} -",
    "hscan": f"{KEY} 0",
    "hset": f"{KEY} - -",
    "info": "memory",
    "lindex": f"{KEY} 0",
    "llen": KEY,
    "lpush": f"{KEY} -",
    "lrange": f"{KEY} 0 1",
    "lset": f"{KEY} 0 -",
    "pexpire": f"{KEY} 1",
    "rpush": f"{KEY} -",
    "set": f"{KEY} -",
    "time": "",
    "unlink": KEY,
    "zadd": f"{KEY} 1 -",
    "zcard": KEY,
    "zcount": f"{KEY} 0 1",
    "zrange": f"{KEY} 0 1",
    "zrangebyscore": f"{KEY} 0 1",
    "zrem": f"{KEY} -",
    "zscore": f"{KEY} -",
}
"""What every user calls, and with which arguments it may be shown: a server does not tell of a call with too few."""

POLLS: Mapping[str, str] = {"lpop": KEY}
"""What a user who is woken by wake=poll calls as well."""


LOOKS = ("followers", "get", "lease_ends", "leased", "read_results", "scan", "stats", "sweep", "time")
"""Scripts that change nothing."""

_SCRIPT = re.compile(r"^-- script: (\w+)\n", re.MULTILINE)
_PART = re.compile(r"^-- part: (\w+)\n", re.MULTILINE)
_INCLUDE = re.compile(r"^-- include: (.+)\n", re.MULTILINE)
_FOREIGN = re.compile(r"^-- (include|run): (.+)\n", re.MULTILINE)
_TOLD = re.compile(r"--[^\n]*|'[^'\n]*'|(?<!\.)\.\w+")  # comments, strings and fields
_WORD = re.compile(r"\w+")
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


class _Piece(NamedTuple):
    """A part of a script's text. It may be left out when nothing else has one of the names that it defines."""

    text: str
    words: list[str]
    defines: list[str]


@functools.cache
def scripts() -> Mapping[str, Script]:
    return {name: script(name, *texts) for name, texts in sources()}


def sources() -> Iterator[tuple[str, list[str]]]:
    """The name of each script, and what it is put together from."""
    folder = files(__package__) / "scripts"
    parts = dict(chain.from_iterable(_parts(file.read_text(encoding="utf-8")) for file in (folder / "parts").iterdir()))
    for file in sorted(folder.iterdir(), key=lambda each: each.name):
        if file.name.endswith(".lua"):
            beginning, *named = _SCRIPT.split(file.read_text(encoding="utf-8"))
            for name, text in zip(named[::2], named[1::2], strict=True):
                own, *included = _INCLUDE.split(beginning + text)
                texts = [own]
                for names, following in zip(included[::2], included[1::2], strict=True):
                    texts += [*map(parts.__getitem__, names.split()), following]
                yield name, texts


def _parts(text: str) -> Iterator[tuple[str, str]]:
    _, *named = _PART.split(text)
    for name, part in zip(named[::2], named[1::2], strict=True):
        yield name, part.strip("\n") + "\n"


def script(name: str, *texts: str) -> Script:
    text = without_unused(*texts) + "end)()\n"  # of the function that begin.lua opens
    text = text.replace("  may()\n", "".join(map(_asked, commands(text))), 1)
    return Script(name, text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


def without_unused(*texts: str) -> str:
    """The script without the functions and values that it does not use: each costs time at every run."""
    pieces = [piece for text in texts for piece in _pieces(text)]
    defined = {name: i for i, piece in enumerate(pieces) for name in piece.defines}
    named = Counter(filter(defined.__contains__, chain.from_iterable(piece.words for piece in pieces)))
    maybe, left_out = list(defined.values()), set[int]()
    while maybe:
        i = maybe.pop()
        if i not in left_out and all(named[name] == 1 for name in pieces[i].defines):
            left_out.add(i)
            for word in filter(defined.__contains__, pieces[i].words):
                named[word] -= 1
                maybe.append(defined[word])
    return "".join(piece.text for i, piece in enumerate(pieces) if i not in left_out)


@functools.cache
def send_script() -> str:
    """What `bide script send` prints."""
    folder = files(__package__) / "scripts" / "foreign"

    def read(name: str) -> str:
        return (folder / f"{name}.lua").read_text(encoding="utf-8")

    def stands_for(line: re.Match[str]) -> str:
        kind, names = line[1], line[2].split()
        return "\n".join(read(name) if kind == "include" else scripts()[name].text for name in names)

    return _FOREIGN.sub(stands_for, read("send"))


@functools.cache  # most scripts share their parts
def _pieces(text: str) -> list[_Piece]:
    found, at = list[_Piece](), 0
    for each in sorted([*_FUNCTION.finditer(text), *_VALUES.finditer(text)], key=re.Match.start):
        found += [_piece(text[at : each.start()], ""), _piece(each[0], each["name"])]
        at = each.end()
    return [*found, _piece(text[at:], "")]


def _piece(text: str, defines: str) -> _Piece:
    return _Piece(text, _WORD.findall(_TOLD.sub("", text)), defines.split(", ") if defines else [])


def _asked(command: str) -> str:
    """The line by which a script asks whether it may call this."""
    arguments = {**CALLS, **POLLS}[command.lower()].split()
    asked = ", ".join([repr(command), *("META" if each == KEY else repr(each) for each in arguments)])
    return f"  if not may({asked}) then error('NORIGHT {command}', 0) end\n"


def commands(text: str) -> list[str]:
    """The commands that a script calls."""
    return sorted(set(re.findall(r"call(?<!pcall)\('([A-Z]+)'", text)))
