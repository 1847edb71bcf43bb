"""The pages for contributors name files that exist: code moves, and a path that leads nowhere costs a stranger an hour."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs/contributing").glob("*.md"))]
RENAMES = "renames.md"
PLACES = ("", "src/bide")  # where a path may begin
PATH = re.compile(r"`([\w./-]+(?:/|/[\w-]+|\.(?:py|lua|sql|json|toml|txt|md|yml)))`")
NOT_THERE = {"build/peers", "build/site", "web/"}  # made by commands, or not built yet


def paths(page: Path) -> Iterator[str]:
    """The files and folders that a page names; of a table of renames, only the right column."""
    for line in page.read_text(encoding="utf-8").splitlines():
        yield from PATH.findall(line.split("|")[2] if page.name == RENAMES and line.startswith("|") else line)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_for_contributors_names_only_what_exists(page: Path) -> None:
    named = set(paths(page)) - NOT_THERE
    missing = [path for path in sorted(named) if not any((ROOT / place / path).exists() for place in PLACES)]
    assert missing == []


def test_the_map_names_only_classes_and_constants_that_exist() -> None:
    code = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "src/bide").rglob("*.py"))
    defined = set(re.findall(r"^class (\w+)|^([A-Z]\w+)\b.* =", code, re.MULTILINE))
    named = set(re.findall(r"`([A-Z]\w+)(?:\.\w+)*`", (ROOT / "docs/contributing/map.md").read_text(encoding="utf-8")))
    assert named - {name for pair in defined for name in pair} - {"NEWER", "NAMES"} == set()  # which are constants of tests


def test_the_paths_of_a_page_are_found(tmp_path: Path) -> None:
    text = "`core/backoff.py` and `queue/run/`, `tests/unit`, `make demo`, `Envelope.message`, `src/bide/engines/<name>/`\n"
    (tmp_path / "page.md").write_text(text, encoding="utf-8")
    assert list(paths(tmp_path / "page.md")) == ["core/backoff.py", "queue/run/", "tests/unit"]
    (tmp_path / RENAMES).write_text("| before | now |\n|---|---|\n| `core/when.py` | `core/times.py` |\n", encoding="utf-8")
    assert list(paths(tmp_path / RENAMES)) == ["core/times.py"]


def test_the_map_names_all_folders_of_tests() -> None:
    text = (ROOT / "docs/contributing/map.md").read_text(encoding="utf-8").partition("\n## The test folders\n")[2]
    there = {f"tests/{each.parent.name}" for each in (ROOT / "tests").glob("*/*.py")}
    assert set(re.findall(r"`(tests/\w+)`", text)) == there
