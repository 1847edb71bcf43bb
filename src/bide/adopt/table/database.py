"""What a polled table needs of its database: transactions, and statements with named values."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from bide.errors import BideError, ConfigError, Unavailable

Row: TypeAlias = dict[str, Any]


class Database(Protocol):
    """One connection. All verbs raise a BideError."""

    shown: str
    utc: str  # an expression for a column {} with a time in UTC that does not say so

    def begin(self) -> None:
        """Begin a transaction that takes rows."""

    def commit(self) -> None: ...

    def rollback(self) -> None: ...

    def rows(self, query: str, limit: int | None, *, lock: bool = False) -> list[Row]:
        """What a query finds. `lock`: nobody else takes it until the transaction ends; rows that others lock are left out."""

    def do(self, statement: str, values: Sequence[Mapping[str, Any]]) -> int:
        """Run a statement with `:name` in place of values, once for each of these. How many rows it has changed in all."""

    def run(self, statement: str) -> None:
        """Run a statement without values."""

    def close(self) -> None: ...


def refused(shown: str, text: str) -> BideError:
    """The server did not take a statement of the command line."""
    return ConfigError(f"{shown} refuses a statement: {text.splitlines()[0][:300]}. Correct --query, --take or --undo.")


def unavailable(shown: str) -> BideError:
    return Unavailable(f"{shown} does not answer: check that it runs, and run the command again: it goes on.")
