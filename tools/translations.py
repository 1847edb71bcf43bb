"""Keeps the Chinese pages beside the English ones, and names what is stale.

Each Chinese page ends with a record: a digest of each English section as it was when it was translated. The check names
pages that are missing, sections whose English text has changed since, paragraphs and links that were left out, code and
figures that differ, comments in English, and links to an English page that has a Chinese one.

    python -m tools.translations                write code and figures of the English pages, and docs/zh/index.md
    python -m tools.translations --check        write nothing; the exit code is 1 if something is stale
    python -m tools.translations --accept PAGE  record that PAGE, a Chinese page, says what the English one says now
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools.page import FENCE, Code, sections
from tools.pair import RECORD, RUN, Translated, accepted, carried_over, differences, stale_sections

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.zh.md": "README.md",
    "docs/zh/quickstart.md": "docs/quickstart.md",
    "docs/zh/redis.md": "docs/redis.md",
    "docs/zh/worker.md": "docs/worker.md",
    "docs/zh/tasks.md": "docs/tasks.md",
    "docs/zh/production.md": "docs/production.md",
    "docs/zh/lateness.md": "docs/lateness.md",
    "docs/zh/locks.md": "docs/locks.md",
    "docs/zh/timers.md": "docs/timers.md",
    "docs/zh/postgres.md": "docs/postgres.md",
    "docs/zh/rabbitmq.md": "docs/rabbitmq.md",
    "docs/zh/roads.md": "docs/roads.md",
    "docs/zh/mistakes.md": "docs/mistakes.md",
    "docs/zh/recipes/index.md": "docs/recipes/index.md",
    "docs/zh/recipes/shops.md": "docs/recipes/shops.md",
    "docs/zh/recipes/users.md": "docs/recipes/users.md",
    "docs/zh/recipes/things.md": "docs/recipes/things.md",
}
"""Each Chinese page, and the English page that it translates."""

HOME, README, GLOSSARY = "docs/zh/index.md", "README.zh.md", "docs/zh/glossary.md"


def read(root: Path, pages: dict[str, str], name: str) -> Translated:
    return Translated(name, _text(root / name), pages[name], _text(root / pages[name]))


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def faults(root: Path, pages: dict[str, str]) -> Iterator[str]:
    for name, original in pages.items():
        if not (root / original).exists():
            yield f"{name}: its English page, {original}, is gone. Remove both from PAGES, or name the new one."
        elif not (root / name).exists():
            yield f"{name} is missing: translate {original}, then run --accept {name}."
        else:
            page = read(root, pages, name)
            yield from stale_sections(page)
            yield from differences(page)
            yield from links_to_english(root, pages, page)
            yield from links_left_out(root, pages, page)
            yield from other_words(root, page)
            if f"[中文]({os.path.relpath(root / name, (root / original).parent)})" not in page.english:
                yield f"{original} has no link to its Chinese page, {name}: write [中文](…) under its title."
    for path in sorted(root.glob("docs/zh/**/*.md")):
        if (name := path.relative_to(root).as_posix()) not in {*pages, GLOSSARY, HOME}:
            yield f"{name} is not in PAGES: say which English page it translates."
    if README in pages and (root / README).exists() and home(root) != _home_now(root):
        yield f"{HOME} is not what {README} makes of it. {RUN}."


def links_to_english(root: Path, pages: dict[str, str], page: Translated) -> Iterator[str]:
    """A link to an English page that has a translation, other than the one to the page's own."""
    chinese = {original: name for name, original in pages.items()}
    for section in sections(page.chinese):
        for target in section.links:
            goal, anchor = _goal(page.name, target)
            if goal in chinese and (goal != page.original or anchor):
                yield f"{page.name} links to {target}, which has a Chinese page: {chinese[goal]}."


def links_left_out(root: Path, pages: dict[str, str], page: Translated) -> Iterator[str]:
    """A link of the English page, where the Chinese section leads to no such page or section."""

    def place(name: str, target: str) -> tuple[str, str | int]:
        """The same for a link to an English page and one to its Chinese page: which page, and which of its sections."""
        goal, anchor = _goal(name, target)
        goal = README if goal == HOME else goal
        original = pages.get(goal, goal)
        if anchor and original in pages.values() and (root / goal).exists():
            anchors = [each.anchor for each in sections(_text(root / goal))]
            return original, anchors.index(anchor) if anchor in anchors else anchor
        return original, anchor

    for chinese, english in page.pairs:
        there = [place(page.name, target) for target in chinese.links]
        for target in english.links:
            if (wanted := place(page.original, target)) in there:
                there.remove(wanted)
            else:
                yield f"{page.name}: section '{chinese.title}' has no link to where {target} leads in {page.original}."


def _goal(name: str, target: str) -> tuple[str, str]:
    """The file, from the root, and the anchor that a link in the page of this name leads to."""
    if "://" in target:
        return target, ""
    path, _, anchor = target.partition("#")
    return os.path.normpath(Path(name).parent / path) if path else name, anchor


def other_words(root: Path, page: Translated) -> Iterator[str]:
    """Words that the glossary replaces by another one: those in its last column. Comments in code count, code does not."""
    if not (root / GLOSSARY).exists():
        return
    text = FENCE.sub(lambda found: Code(*found.groups()).comments(), page.chinese)
    for word, *_, others in (row for section in sections(_text(root / GLOSSARY)) for row in section.rows[1:]):
        for other in filter(None, others.split("、")):
            if other in text:
                yield f"{page.name} says '{other}' where the glossary says '{word}'."


def home(root: Path) -> str:
    """The Chinese home of the site: README.zh.md, with links as they are from docs/zh."""

    def link(found: re.Match[str]) -> str:
        target = found[1]
        if "://" in target or target.startswith("#"):
            return found[0]
        return f"]({'../index.md' if target == 'README.md' else os.path.relpath(root / target, (root / HOME).parent)})"

    text = re.sub(r"\]\(([^)\s]+)\)", link, RECORD.sub("\n", _text(root / README)))
    return f"<!-- Made from {README} by tools/translations.py; change that file instead. -->\n\n{text}"


def _home_now(root: Path) -> str:
    return _text(root / HOME) if (root / HOME).exists() else ""


def write(root: Path, pages: dict[str, str], accept: list[str]) -> None:
    for name in [name for name, original in pages.items() if (root / name).exists() and (root / original).exists()]:
        page = read(root, pages, name)
        page = page._replace(chinese=carried_over(page))
        text = accepted(page) if name in accept else page.chinese
        if text != _text(root / name):
            (root / name).write_text(text, encoding="utf-8")
            print(f"translations: wrote {name}")
    if README in pages and (root / README).exists():
        (root / HOME).parent.mkdir(parents=True, exist_ok=True)
        (root / HOME).write_text(home(root), encoding="utf-8")


def main(arguments: list[str], root: Path = ROOT, pages: dict[str, str] = PAGES) -> int:
    flags, names = (
        [each for each in arguments if each.startswith("--")],
        [each for each in arguments if not each.startswith("--")],
    )
    unknown = [each for each in names if each not in pages]
    if flags not in ([], ["--check"], ["--accept"]) or unknown or bool(names) != (flags == ["--accept"]):
        print(f"{__doc__}\nPages: {', '.join(pages)}", file=sys.stderr)
        return 2
    if flags != ["--check"]:
        write(root, pages, names)
    found = sorted(faults(root, pages))
    if found:
        print(*found, "docs/contributing/translations.md says how pages are kept in step.", sep="\n", file=sys.stderr)
        return 1
    print(f"translations: {len(pages)} pages are in step")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
