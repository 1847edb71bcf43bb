"""A polled table: rows are locked, marked or deleted as old pollers do it, and held in a side table, in one transaction."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from typing import Any

import msgspec

from bide.adopt.shape import Shape
from bide.adopt.source import EarlierRun, Entries, FoundEntry, Names, RefusedEntry, UnreadableEntry, new_take
from bide.adopt.table.database import Row, TableDatabase, named_in
from bide.adopt.table.rows import Columns, known, message, plain
from bide.core.formats import plural
from bide.errors import BadUrl, BideError, ConfigError

SIDE = "create table if not exists bide_adopt (name text primary key, source text not null, taken bigint not null, entry text)"
INSERT = "insert into bide_adopt (name, source, taken, entry) values (:name, :source, :taken, :entry)"
HELD = "select name, taken, entry from bide_adopt where source = '{}' order by taken, name"
DELETE = "delete from bide_adopt where name = :name"


class TableStatements(msgspec.Struct, frozen=True, kw_only=True):
    """SQL of the command line. `:name` stands for a column of the row."""

    query: str  # finds the rows that wait
    take: str  # marks or deletes the row with :id, so that no poller and no query finds it
    undo: str | None = None  # the reverse


class SourceTable:
    """Its rows are told from those of other tables in the side table by its query."""

    def __init__(self, database: TableDatabase, said: TableStatements, columns: Columns, shape: Shape) -> None:
        self._database = database
        self._source: str = sha256(said.query.encode()).hexdigest()[:32]
        self._said = said
        self._columns: Columns = msgspec.structs.replace(columns, utc=database.utc)
        self._shape = shape
        self._refused: set[Any] = set()  # ids of rows of this run, refused or given back
        self._entries: dict[str, Row] = {}  # what is held, by its name
        self._checked = False
        self._destination = ""

    @property
    def kind(self) -> str:
        return "table"

    @property
    def shown(self) -> str:
        return f"a table at {self._database.shown}"

    def aim(self, destination: str) -> None:
        self._destination = destination

    def count(self) -> int | None:
        [row] = self._database.rows(f"select count(*) as number from ({self._said.query}\n) as waiting", None)
        return int(row["number"])

    def peek(self, limit: int) -> Entries:
        found, refused = list[FoundEntry](), list[RefusedEntry]()
        rows = self._database.rows(self._said.query, limit)
        for row in rows[:1]:
            self._check_names(row)
        for row in rows:
            try:
                found.append(FoundEntry(self._id(row), message(plain(row), self._columns, self._shape)))
            except UnreadableEntry as error:
                refused.append(RefusedEntry(self._id(row), str(error)))
        return Entries(found, refused)

    def held(self) -> EarlierRun:
        try:
            rows = self._database.rows(HELD.format(self._source), None)
        except ConfigError:  # there is no side table yet
            return EarlierRun()
        found, refused = list[FoundEntry](), list[RefusedEntry]()
        for row in rows:
            entry = self._entries[row["name"]] = _stored(row["entry"])
            try:
                found.append(FoundEntry(row["name"], message(entry, self._columns, self._shape)))
            except UnreadableEntry as error:
                refused.append(RefusedEntry(self._id(entry), str(error), row["name"]))
        age = max(0.0, time.time() - rows[0]["taken"] / 1000) if rows else 0.0
        return EarlierRun(found, refused, age)

    def take(self, limit: int) -> Entries:
        database = self._database
        if not self._checked:
            database.run(SIDE)
        database.begin()
        try:
            refused, asked = list[RefusedEntry](), limit + len(self._refused)
            while True:
                rows = database.rows(self._said.query, asked, lock=True)
                wanted, left = self._choose(rows, limit)
                refused += left
                if wanted or len(rows) < asked:
                    break
                asked += limit  # others are behind those that can't be read
            taken = self._take(wanted)
            database.commit()
        except BaseException:
            with suppress(BideError):
                database.rollback()
            raise
        return Entries(taken, refused)

    def finish(self, names: Sequence[str], changed: Names) -> None:
        if names:
            self._database.begin()
            self._database.do(DELETE, [{"name": name} for name in names])
            self._database.commit()
        for name in names:
            self._entries.pop(name, None)

    def settle(self) -> None:
        """It tells nothing of what was changed or ended."""

    def give_back(self, names: Sequence[str]) -> None:
        if self._said.undo is None:
            raise ConfigError(
                f"Only --undo can say how {plural(len(names), 'row')} of {self.shown} go back: a statement as --take, "
                "which makes the row with :id wait again. They are held in the table bide_adopt: run the command again with it."
            )
        entries = [self._entries[name] for name in names]
        for entry in entries[:1]:
            self._check_names(entry)
        self._refused |= {known(entry[self._columns.id]) for entry in entries}
        self._database.begin()
        try:
            if (changed := self._database.do(self._said.undo, [_values(each) for each in entries])) != len(entries):
                raise ConfigError(
                    f"--undo changed {plural(changed, 'row')} in place of {len(entries)}: it must change the row with :id."
                )
            self._database.do(DELETE, [{"name": name} for name in names])
            self._database.commit()
        except BaseException:
            with suppress(BideError):
                self._database.rollback()
            raise

    def close(self) -> None:
        self._database.close()

    def _choose(self, rows: Sequence[Row], limit: int) -> tuple[list[tuple[Row, FoundEntry]], list[RefusedEntry]]:
        """The rows that can be taken, and those that are refused for the first time."""
        wanted, refused, taking = list[tuple[Row, FoundEntry]](), list[RefusedEntry](), new_take(self._destination)
        for place, row in enumerate(rows):
            id = row.get(self._columns.id)
            name = known(id) if id is not None else place  # rows without an id are told by where they are
            if name in self._refused or len(wanted) == limit:
                continue
            try:
                entry = plain(row)
                found = FoundEntry(f"{taking}-{len(wanted):06}", message(entry, self._columns, self._shape))
            except UnreadableEntry as error:
                self._refused.add(name)
                refused.append(RefusedEntry(self._id(row), str(error)))
                continue
            wanted.append((entry, found))
        return wanted, refused

    def _take(self, wanted: Sequence[tuple[Row, FoundEntry]]) -> list[FoundEntry]:
        """Within a transaction. Raises ConfigError if --take does not do what it should."""
        if not wanted:
            return []
        self._check_names(wanted[0][0])
        changed = self._database.do(self._said.take, [_values(entry) for entry, _ in wanted])
        if changed != len(wanted):
            raise ConfigError(
                f"--take changed {plural(changed, 'row')} in place of {len(wanted)}, and was taken back. It must change the "
                f"row with :{self._columns.id}, and no other.{self._not_unique([entry for entry, _ in wanted])}"
            )
        self._check_hidden({known(entry[self._columns.id]) for entry, _ in wanted})
        now = time.time_ns() // 1_000_000
        rows = [
            {"name": found.name, "source": self._source, "taken": now, "entry": msgspec.json.encode(entry).decode()}
            for entry, found in wanted
        ]
        self._database.do(INSERT, rows)
        self._entries |= {found.name: entry for entry, found in wanted}
        return [found for _, found in wanted]

    def _not_unique(self, rows: Sequence[Row]) -> str:
        """What else to tell if --take changed another number of rows."""
        column = self._columns.id
        [(id, number)] = Counter(str(row[column]) for row in rows).most_common(1)
        if number > 1:
            found = f"--query found {number:,} rows whose {column} is {id[:100]!r}"
            return f" {found}: it must be unique. Name another column with --id."
        return f" Is the column {column} unique in the table? If not, name another one with --id."

    def _check_names(self, row: Row) -> None:
        """Raises ConfigError if a statement names a column that the rows do not have."""
        for option, statement in (("--take", self._said.take), ("--undo", self._said.undo or "")):
            for name in named_in(statement):
                if name not in row:
                    raise ConfigError(f"{option} says :{name}, and --query has no column {name}. It has {', '.join(row)}.")

    def _check_hidden(self, ids: set[bytes]) -> None:
        """Once a run: that the query does not find what was taken."""
        if self._checked:
            return
        rows = self._database.rows(self._said.query, len(ids) + len(self._refused))
        again = {known(row.get(self._columns.id)) for row in rows}
        if ids & again:
            raise ConfigError(
                "--query still finds rows that --take has changed, so they would be taken again. Nothing was changed. Let "
                "--take delete them, or mark them as --query has them not: where not done."
            )
        self._checked = True

    def _id(self, row: Mapping[str, Any]) -> str:
        return str(row.get(self._columns.id))[:100]


def _stored(text: str) -> Row:
    """The row that was written as this text: objects in it stay as they were written, to the byte."""
    parts = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    values: Row = msgspec.json.decode(text)
    return {name: msgspec.Raw(bytes(parts[name])) if isinstance(each, dict | list) else each for name, each in values.items()}


def _values(entry: Row) -> Row:
    """For a statement: what is JSON as text."""
    return {name: bytes(value).decode() if isinstance(value, msgspec.Raw) else value for name, value in entry.items()}


def database(url: str) -> TableDatabase:
    """Raises BadUrl for another kind of database, and what the database raises."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from bide.adopt.table.database import SQLite  # noqa: PLC0415

        return SQLite(url)
    if scheme in ("postgres", "postgresql"):
        from bide.adopt.table.postgres import PostgresTable  # noqa: PLC0415 (its driver is an extra)

        return PostgresTable(url)
    raise BadUrl("The table must be in PostgreSQL or SQLite: postgres://host/database, or sqlite:///file.db.")
