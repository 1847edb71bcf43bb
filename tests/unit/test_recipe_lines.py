"""The table of lines in the docs: what counts as a line, that the table is fresh, and that nothing is left out."""

import ast
from pathlib import Path

import pytest

from benchmarks.recipes.lines import DIFFERS, FOLDERS, PAGE, counted, written
from benchmarks.recipes.stories import STORIES

CODE = '''"""What it is."""

import os
from a import (
    b,
)

# a comment
NAME = os.name  # counts once
TEXT = """two
lines"""


def work(
    a: int,
) -> int:
    """Not counted,
    either."""
    import sys

    return b(a, sys)


if __name__ == "__main__":
    work(1)
'''


def test_lines_of_code_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "recipe.py"
    path.write_text(CODE, encoding="utf-8")
    assert counted(path) == 7  # NAME, TEXT twice, three of the signature, return


def test_the_page_shows_the_lines_as_they_are() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert "<!-- counted: recipes -->" in page
    assert written(page) == page, "run python -m benchmarks.recipes --write"


@pytest.mark.parametrize("system", FOLDERS)
def test_each_recipe_is_written_for_each_system(system: str) -> None:
    apart = {"__init__", "app", "broker", "database"}
    assert {path.stem for path in FOLDERS[system].glob("*.py")} - apart == {*STORIES, "outbox"} == DIFFERS.keys()
    for path in FOLDERS[system].glob("*.py"):
        ast.parse(path.read_text(encoding="utf-8"))
