"""Keeps the Chinese pages beside the English ones, and names what is stale.

Each Chinese page ends with a record: a digest of each English section as it was when it was translated. The check names
pages that are missing, sections whose English text has changed since, code and figures that differ, and links to an
English page that has a Chinese one.

    python -m tools.translations                write code and figures of the English pages, and docs/zh/index.md
    python -m tools.translations --check        write nothing; the exit code is 1 if something is stale
    python -m tools.translations --accept PAGE  record that PAGE, a Chinese page, says what the English one says now
"""

import os
import re
import sys
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from tools.page import FENCE, FIGURE, Code, Section, cells, figures, sections

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.zh.md": "README.md",
    "docs/zh/quickstart.md": "docs/quickstart.md",
    "docs/zh/roads.md": "docs/roads.md",
    "docs/zh/mistakes.md": "docs/mistakes.md",
    "docs/zh/recipes/index.md": "docs/recipes/index.md",
    "docs/zh/recipes/shops.md": "docs/recipes/shops.md",
    "docs/zh/recipes/users.md": "docs/recipes/users.md",
    "docs/zh/recipes/things.md": "docs/recipes/things.md",
}
"""Each Chinese page, and the English page that it translates."""

ORIGINAL = {"docs/zh/glossary.md"}
"""Chinese pages that translate nothing."""

RUN = "Run python -m tools.translations"
HOME, README = "docs/zh/index.md", "README.zh.md"
RECORD = re.compile(r"\n*<!-- translated from (\S+)\n(.*?)-->\n*\Z", re.DOTALL)
CHINESE = re.compile(r"[\u4e00-\u9fff]")


class Translated(NamedTuple):
    """A Chinese page that is there, and its English one."""

    name: str
    chinese: str
    original: str
    english: str

    @property
    def pairs(self) -> list[tuple[Section, Section]]:
        """Chinese and English sections; none if they don't stand in the same order."""
        chinese, english = sections(self.chinese), sections(self.english)
        if [each.level for each in chinese] != [each.level for each in english]:
            return []
        return list(zip(chinese, english, strict=True))


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
    for path in sorted(root.glob("docs/zh/**/*.md")):
        if (name := path.relative_to(root).as_posix()) not in {*pages, *ORIGINAL, HOME}:
            yield f"{name} is not in PAGES: say which English page it translates."
    if README in pages and (root / README).exists() and home(root) != _home_now(root):
        yield f"{HOME} is not what {README} makes of it. {RUN}."


def stale_sections(page: Translated) -> Iterator[str]:
    """What has changed in the English page since the record was made."""
    found = RECORD.search(page.chinese)
    if found is None:
        yield f"{page.name} has no record. When it says what {page.original} says, run --accept {page.name}."
        return
    recorded = {title: digest for digest, title in (line.split(" ", 1) for line in found[2].splitlines())}
    now = digests(page.english)
    for title in now.keys() - recorded.keys():
        yield f"{page.name} is stale: {page.original} has a new section, '{title}'."
    for title in recorded.keys() - now.keys():
        yield f"{page.name} is stale: {page.original} has no section '{title}' any more."
    for title in now.keys() & recorded.keys():
        if now[title] != recorded[title]:
            yield f"{page.name} is stale: '{title}' of {page.original} has changed."


def digests(text: str) -> dict[str, str]:
    """A digest for each section. A title that comes twice gets a number, and `--` would end the comment of the record."""
    found: dict[str, str] = {}
    for each in sections(text):
        title = unique = each.title.replace("--", "- -")
        number = 2
        while unique in found:
            unique, number = f"{title} ({number})", number + 1
        found[unique] = each.digest()
    return found


def differences(page: Translated) -> Iterator[str]:
    """Where the Chinese page has other sections, code or figures."""
    if not page.pairs:
        for number, (chinese, english) in enumerate(zip_longest(sections(page.chinese), sections(page.english)), 1):
            if not chinese or not english or chinese.level != english.level:
                titles = [f"'{each.title}'" if each else "missing" for each in (chinese, english)]
                yield f"{page.name}: heading {number} is {titles[0]}; in {page.original} it is {titles[1]}."
                return
    for chinese, english in page.pairs:
        where = f"{page.name}: section '{chinese.title}'"
        codes = [[each.bare() for each in section.codes] for section in (chinese, english)]
        if codes[0] != codes[1]:
            yield f"{where} has other code than '{english.title}'. {RUN}, then translate the comments."
        if len(chinese.rows) != len(english.rows):
            yield f"{where} has {len(chinese.rows)} rows in its tables; '{english.title}' has {len(english.rows)}."
            continue
        for left, right in zip(chinese.rows, english.rows, strict=True):
            if [figures(each) for each in left] != [figures(each) for each in right]:
                yield f"{where} has other figures in the row '{left[0]}' than '{right[0]}'. {RUN}."


def links_to_english(root: Path, pages: dict[str, str], page: Translated) -> Iterator[str]:
    """A link to an English page that has a translation, other than the page's own."""
    chinese = {original: name for name, original in pages.items()}
    for section in sections(page.chinese):
        for target in section.links:
            path = os.path.normpath((root / page.name).parent / target.partition("#")[0])
            goal = Path(path).relative_to(root).as_posix() if Path(path).is_relative_to(root) else ""
            if "://" not in target and goal in chinese and goal != page.original:
                yield f"{page.name} links to {target}, which has a Chinese page: {chinese[goal]}."


def carried_over(page: Translated) -> str:
    """The Chinese page with the code and the figures of the English one. Comments on lines that stay are kept."""
    text = page.chinese
    for chinese, english in page.pairs:
        fresh = chinese.text
        if len(chinese.codes) == len(english.codes):
            codes = iter(english.codes)
            fresh = FENCE.sub(lambda found: _code(Code(*found.groups()), next(codes)), fresh)  # noqa: B023
        if len(chinese.rows) == len(english.rows):
            fresh = _with_figures(fresh, english.rows)
        text = text.replace(chinese.text, fresh, 1) if fresh != chinese.text else text
    return text


def _code(chinese: Code, english: Code) -> str:
    return f"```{english.language}\n{english.with_comments_of(chinese).text}```"


def _with_figures(text: str, rows: list[list[str]]) -> str:
    """Takes over figures from cells with the same number of them: in Chinese, the order in a sentence may be another."""
    remaining = iter(rows)
    lines = FENCE.sub(lambda found: re.sub(r"^\|", "\0|", found[0], flags=re.MULTILINE), text).splitlines(keepends=True)
    for number, line in enumerate(lines):
        if line.startswith("|") and not re.fullmatch(r"[|: -]+\n?", line):
            lines[number] = f"| {' | '.join(map(_cell, cells(line), next(remaining)))} |\n"
    return "".join(lines).replace("\0", "")


def _cell(chinese: str, english: str) -> str:
    found = FIGURE.findall(english)
    same_order = len(found) == 1 or not CHINESE.search(chinese)
    if figures(chinese) == sorted(found) or len(found) != len(FIGURE.findall(chinese)) or not same_order:
        return chinese
    values = iter(found)
    return FIGURE.sub(lambda _: next(values), chinese)


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


def accepted(page: Translated) -> str:
    record = "".join(f"{digest} {title}\n" for title, digest in digests(page.english).items())
    return f"{RECORD.sub('', page.chinese).rstrip()}\n\n<!-- translated from {page.original}\n{record}-->\n"


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
        print(*found, "CONTRIBUTING.md says how pages are kept in step.", sep="\n", file=sys.stderr)
        return 1
    print(f"translations: {len(pages)} pages are in step")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
