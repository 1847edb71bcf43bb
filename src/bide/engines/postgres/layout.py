"""The tables and functions on the server, as numbered migrations, and which of them a release can work with."""

import re
from collections.abc import Mapping
from importlib.resources import files

from bide.errors import SchemaMismatch


def _texts(folder: str) -> Mapping[str, str]:
    found = files(__package__).joinpath(folder).iterdir()
    return {file.name: file.read_text(encoding="utf-8") for file in sorted(found, key=str) if file.name.endswith(".sql")}


MIGRATIONS = tuple(_texts("migrations").values())
FUNCTIONS = "\n".join(_texts("functions").values())
LAYOUT = len(MIGRATIONS)
OLDEST = 1  # the layout that a program must know at least to work on what this release has migrated

FIND = "select to_regclass('{schema}.layout') is not null"
READ = "select number, oldest from {schema}.layout"
LOCK = "select pg_advisory_xact_lock(8243126, hashtext('{schema}'))"


def named(text: str, schema: str) -> str:
    """SQL for a schema: `bide.` before a name stands for it, and 'bide' is the channel of its notifications."""
    return re.sub(r"\bbide\.", f'"{schema}".', text).replace("'bide'", f"'{schema}'")


def filled(text: str, schema: str) -> str:
    return text.format(schema=f'"{schema}"')


def steps(schema: str, found: int) -> str:
    """All that a layout lacks, in one script."""
    making = [f'create schema if not exists "{schema}";'] if found == 0 else []
    numbered = f"delete from bide.layout; insert into bide.layout values ({LAYOUT}, {OLDEST});"
    return "\n".join([*making, *(named(text, schema) for text in (*MIGRATIONS[found:], FUNCTIONS, numbered))])


def check(shown: str, number: int, oldest: int) -> None:
    """Refuse what another release has made, unless both can work on it."""
    if oldest > LAYOUT:
        raise SchemaMismatch(
            f"{shown} has layout {number}, and this release of bide knows up to {LAYOUT}: update bide here, as it was updated "
            "where the tables were last migrated."
        )
