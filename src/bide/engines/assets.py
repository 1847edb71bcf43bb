"""Loads the files that lie beside an engine: .sql with statements that begin with a line `-- name: …`, and .lua scripts."""

import functools
import re
from collections.abc import Mapping
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)\n", re.MULTILINE)


@functools.cache
def statements(package: str, folder: str = "statements") -> Mapping[str, str]:
    """All statements of a package by name; a name that is given twice is an error."""
    found: dict[str, str] = {}
    for file in sorted(files(package).joinpath(folder).iterdir(), key=lambda each: each.name):
        if not file.name.endswith(".sql"):
            continue
        _, *pieces = _NAME.split(file.read_text(encoding="utf-8"))
        for name, statement in zip(pieces[::2], pieces[1::2], strict=True):
            if name in found:
                raise ValueError(f"the statement {name} of {package} is there twice")
            found[name] = statement.strip()
    return found


@functools.cache
def migrations(package: str, folder: str = "migrations") -> tuple[str, ...]:
    """The scripts that lead from an empty store to the present layout, in order: 0001_….sql, 0002_….sql."""
    named = {file.name: file for file in files(package).joinpath(folder).iterdir() if file.name.endswith(".sql")}
    numbers = [int(name[:4]) for name in sorted(named)]
    if numbers != list(range(1, len(named) + 1)):
        raise ValueError(f"the migrations of {package} are not numbered one by one: {sorted(named)}")
    return tuple(named[name].read_text(encoding="utf-8") for name in sorted(named))


_INCLUDE = re.compile(r"^-- include: (.+)\n", re.MULTILINE)


@functools.cache
def scripts(package: str, folder: str = "scripts") -> Mapping[str, str]:
    """All .lua files of a package by name, each line `-- include: a b` replaced by those files of `parts` beside them."""
    place = files(package).joinpath(folder)

    def part(name: str) -> str:
        return place.joinpath("parts", f"{name}.lua").read_text(encoding="utf-8")

    def included(found: re.Match[str]) -> str:
        return "\n".join(map(part, found[1].split()))

    named = {file.name[:-4]: file for file in place.iterdir() if file.name.endswith(".lua")}
    return {name: _INCLUDE.sub(included, file.read_text(encoding="utf-8")) for name, file in sorted(named.items())}
