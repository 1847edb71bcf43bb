"""Recipes by a clock that stands still, each on a file of its own."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, Protocol

import pytest

from bide import ManualClock, Queue
from examples.recipes import database


class Trip:
    def __init__(self, queue: Queue, clock: ManualClock) -> None:
        self.queue = queue
        self.clock = clock

    def outcomes(self, by: str, *, raise_errors: bool = True) -> list[str]:
        """Of what falls due meanwhile."""
        return [each.outcome for each in self.queue.testing.advance(by, raise_errors=raise_errors)]

    def passes(self, by: str) -> None:
        self.queue.testing.advance(by)

    def rows(self, question: str, *values: Any) -> list[Any]:
        """Of the recipe's own tables; a single column is not wrapped."""
        with database.transaction() as db:
            found = db.execute(question, values).fetchall()
        return [row[0] if len(row) == 1 else row for row in found]

    def executes(self, *statements: str) -> None:
        with database.transaction() as db:
            for each in statements:
                db.execute(each)


@contextmanager
def travelling(recipe: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Trip]:
    path = str(folder / "recipes.db")
    monkeypatch.setattr(database, "PATH", path)
    queue: Queue = recipe.queue
    with queue.testing.elsewhere(f"sqlite:///{path}") as clock, closing(queue):
        database.prepare(queue)
        yield Trip(queue, clock)


class Travels(Protocol):
    def __call__(self, recipe: Any) -> Trip: ...
