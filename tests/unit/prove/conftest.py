"""A history to be written by hand."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.prove.book import Book


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    book = Book(tmp_path / "p.jsonl")
    yield book
    book.file.close()
