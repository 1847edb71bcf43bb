"""The tables and functions on the server, as numbered migrations, and which of them a release can work with.

Each has two parts. `0002_name.sql` adds what a release needs, and leaves what the release before it uses, so that both
can work at the same time. `0002_name.post.sql`, if there is one, removes what only older releases used: it is run by
`bide migrate --finish`, once none of them is left. Functions are made anew by each migration; one whose arguments change gets
another name, and the old one is dropped by the second part.
"""

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import NamedTuple

from bide.errors import SchemaMismatch

READ = "select number, finished from {schema}.layout"
LOCK = "lock table {schema}.layout in share row exclusive mode"


def _migrations() -> Mapping[str, str]:
    _, *named = _MIGRATION.split(files(__package__).joinpath("migrations.sql").read_text(encoding="utf-8"))
    return dict(zip(named[::2], named[1::2], strict=True))


def _functions() -> str:
    found = sorted(files(__package__).joinpath("functions").iterdir(), key=str)
    return "\n".join(file.read_text(encoding="utf-8") for file in found if file.name.endswith(".sql"))


class Layout(NamedTuple):
    """What a release brings to a schema."""

    migrations: Mapping[str, str]  # by their names, in order
    functions: str

    @property
    def number(self) -> int:
        return len(self._parts(post=False))

    def _parts(self, *, post: bool) -> list[str]:
        return [name for name in self.migrations if name.endswith(".post.sql") is post]

    def steps(self, schema: str, found: int) -> str:
        """All that a schema with this number lacks, as one script; the second parts only where there is no older release."""
        first = [f'create schema if not exists "{schema}";'] if found == 0 else []
        last = [self.last_steps(schema, 0)] if found == 0 else []
        parts = [self.migrations[name] for name in self._parts(post=False)[found:]]
        number = f"update bide.layout set number = {self.number};"
        return "\n".join([*first, *(named(text, schema) for text in (*parts, self.functions, number)), *last])

    def last_steps(self, schema: str, finished: int) -> str:
        """The second parts that were not run, as one script; empty if there are none."""
        parts = [self.migrations[name] for name in self._parts(post=True) if int(name[:4]) > finished]
        if not parts:
            return ""
        number = f"update bide.layout set finished = {self.number};"
        return "\n".join(named(text, schema) for text in (*parts, number))

    def indexes(self, schema: str) -> Mapping[str, str]:
        """All that there must be, by name, each with the statement that makes it."""
        made: dict[str, str] = {}
        for text in self.migrations.values():
            made |= {found[1]: found[0] for found in _INDEX.finditer(text)}
            for table in _TABLE.finditer(text):
                made |= {key[1]: f"alter table bide.{table[1]} add {key[0]}" for key in _KEY.finditer(table[0])}
        return {name: " ".join(named(statement, schema).split()) for name, statement in made.items()}


_MIGRATION = re.compile(r"^-- migration: (\d{4}_\w+(?:\.post)?\.sql)\n", re.MULTILINE)
_INDEX = re.compile(r"create (?:unique )?index (\w+) on [^;]*")
_TABLE = re.compile(r"create table bide\.(\w+) \(.*?\n\)", re.DOTALL)
_KEY = re.compile(r"constraint (\w+) primary key \([\w, ]+\)")

OURS = Layout(_migrations(), _functions())


class FoundMigrations(NamedTuple):
    """What is there: the number of the last migration of which the first part was run, and that of the second."""

    number: int = 0
    finished: int = 0
    hidden: bool = False  # this user may not ask: a role that only sends


FIND = (
    "select pg_catalog.to_regclass('{schema}.layout') is not null, coalesce("
    "pg_catalog.has_table_privilege(pg_catalog.to_regclass('{schema}.layout')::pg_catalog.oid, 'select'), true)"
)


def named(text: str, schema: str) -> str:
    """SQL for a schema: `bide.` before a name stands for it, and 'bide' is the channel of its notifications."""
    return re.sub(r"\bbide\.", f'"{schema}".', text).replace("'bide'", f"'{schema}'")


def filled(text: str, schema: str) -> str:
    """In the caller's own transaction, types that are no keywords could be others, by its search_path."""
    return text.format(schema=f'"{schema}"', text="pg_catalog.text[]", bytea="pg_catalog.bytea[]")


def told(shown: str, schema: str, found: FoundMigrations, ours: Layout = OURS) -> str:
    """Where a namespace stands, as a sentence without its end."""
    if not found.number:
        return f"{shown} has no tables of bide in the schema {schema}"
    return f"{shown} has layout {found.number} of bide's tables, and this release needs {ours.number}"


def check(shown: str, found: FoundMigrations, ours: Layout = OURS) -> None:
    """Refuse what a later release has finished: it has removed what this one uses."""
    if found.finished > ours.number:
        raise SchemaMismatch(
            f"{shown} has layout {found.finished}, and this release of bide knows up to {ours.number}: update bide here, as it "
            "was updated where the tables were last migrated."
        )
