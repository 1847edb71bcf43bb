"""Loads an engine's .sql files: its statements, each of which begins with a line `-- name: …`, and its migrations."""

import functools
import re
from collections.abc import Mapping
from importlib.resources import files

_NAME = re.compile(r"^(?:-- [^\n]*\n)*-- name: (\w+)\n", re.MULTILINE)  # with the title of a group before it


@functools.cache
def statements(package: str, file: str = "statements.sql") -> Mapping[str, str]:
    """All statements of a package by name; a name that is given twice is an error."""
    found: dict[str, str] = {}
    _, *pieces = _NAME.split(files(package).joinpath(file).read_text(encoding="utf-8"))
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
