"""Every recipe for real: `bide worker` beside a process that sends, with times made short by the recipe's settings."""

import importlib
import sys
from pathlib import Path

import psycopg
import pytest

from benchmarks.recipes.running import ROOT, told
from benchmarks.recipes.stories import OUTBOX, STORIES, Story

RECIPES, DOCS = ROOT / "examples" / "recipes", ROOT / "docs" / "recipes"

BIDE = [sys.executable, "-m", "bide", "worker", "--log-level", "warning"]
READY = "limits "  # of the banner, which follows when the recipe is imported


def tells(name: str, story: Story, folder: Path, **settings: str) -> None:
    log, module = folder / "worker.log", f"examples.recipes.{name}"
    lines, sent = told(story, [*BIDE, f"{module}:queue"], [sys.executable, "-m", module], settings, log, READY)
    assert (story.missing(lines), len(lines)) == ([], len(story.worker)), f"{lines}\n{log.read_text()}"
    assert sent == story.sender


@pytest.mark.parametrize("name", STORIES)
def test_a_recipe_does_what_it_says(name: str, tmp_path: Path) -> None:
    tells(name, STORIES[name], tmp_path, RECIPES_DB=f"{tmp_path}/recipes.db")


def test_an_outbox_in_postgresql_does_what_it_says(tmp_path: Path, redis_url: str, postgres_url: str) -> None:
    tells("outbox", OUTBOX, tmp_path, BIDE_URL=redis_url, SHOP_URL=postgres_url)


def test_an_order_that_is_rolled_back_in_postgresql_sends_nothing(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOP_URL", postgres_url)
    monkeypatch.setenv("BIDE_URL", "memory://")
    outbox = importlib.reload(importlib.import_module("examples.recipes.outbox"))
    with psycopg.connect(postgres_url) as db:
        db.execute("create table orders (number bigint primary key, state text not null)")
    with outbox.queue:
        outbox.place(1)
        with pytest.raises(psycopg.errors.UniqueViolation):
            outbox.place(1)
        assert outbox.queue.relay(wait=False) == 1


def test_every_recipe_is_told_in_the_docs_and_run_here() -> None:
    recipes = {path.stem for path in RECIPES.glob("*.py")} - {"__init__", "database"}
    assert recipes == {*STORIES, "outbox"}
    pages = "".join(page.read_text(encoding="utf-8") for page in DOCS.glob("*.md"))
    assert {name for name in recipes if f"<!-- generated: recipe {name} -->" not in pages} == set()
