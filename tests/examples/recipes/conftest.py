from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.examples.recipes.travelling import Travels, travelling


@pytest.fixture
def travels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Travels]:
    """Moves a recipe's queue to a file of the test's, and stops its clock."""
    with ExitStack() as stack:
        yield lambda recipe: stack.enter_context(travelling(recipe, tmp_path, monkeypatch))
