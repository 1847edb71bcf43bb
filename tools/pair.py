"""A Chinese page beside the English page that it translates: what is stale or differs, and what can be carried over."""

import re
from collections.abc import Iterator
from itertools import zip_longest
from typing import NamedTuple

from tools.page import FENCE, FIGURE, WORD, Code, Section, cells, figures, sections

RUN = "Run python -m tools.translations"
RECORD = re.compile(r"\n*<!-- translated from (\S+)\n(.*?)-->\n*\Z", re.DOTALL)
CHINESE = re.compile(r"[\u4e00-\u9fff]")
PROSE = re.compile(r"[A-Za-z]+[,;]? [A-Za-z]+")


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


def stale_sections(page: Translated) -> Iterator[str]:
    """What has changed in the English page since the record was made."""
    found = RECORD.search(page.chinese)
    if found is None:
        yield f"{page.name} has no record. When it says what {page.original} says, run --accept {page.name}."
        return
    if found[1] != page.original:
        yield f"{page.name} is stale: its record is of {found[1]}, and its English page is {page.original}."
    recorded = {title: digest for digest, title in (line.split(" ", 1) for line in found[2].splitlines())}
    now = digests(page.english)
    for title in now.keys() - recorded.keys():
        yield f"{page.name} is stale: {page.original} has a new section, '{title}'."
    for title in recorded.keys() - now.keys():
        yield f"{page.name} is stale: {page.original} has no section '{title}' any more."
    for title in now.keys() & recorded.keys():
        if now[title] != recorded[title]:
            yield f"{page.name} is stale: '{title}' of {page.original} has changed."
    if now.keys() == recorded.keys() and list(now) != list(recorded):
        yield f"{page.name} is stale: the sections of {page.original} have another order."


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
        codes = [[(each.language, each.bare()) for each in section.codes] for section in (chinese, english)]
        if codes[0] != codes[1]:
            yield f"{where} has other code than '{english.title}'. {RUN}, then translate the comments."
        for comment in _left_in_english(chinese, english):
            yield f"{where} has a comment in English: {comment}"
        remaining = iter(chinese.parts)
        if lacking := next((part for part in english.parts if part not in remaining), None):
            yield f"{where} has no {lacking} where '{english.title}' has one."
        if len(chinese.rows) != len(english.rows):
            yield f"{where} has {len(chinese.rows)} rows in its tables; '{english.title}' has {len(english.rows)}."
            continue
        for left, right in zip(chinese.rows, english.rows, strict=True):
            if any(theirs and not mine for mine, theirs in zip(left, right, strict=False)):
                yield f"{where} has an empty cell in the row '{left[0]}'."
            if len(left) != len(right) or not all(map(_same_figures, left, right)):
                yield f"{where} has other figures in the row '{left[0]}' than '{right[0]}'. {RUN}."


def _left_in_english(chinese: Section, english: Section) -> Iterator[str]:
    """Comments of more than a word or a name, such as those on lines that were carried over."""
    theirs = {line for code in english.codes for line in code.comments().splitlines()}
    for code in chinese.codes:
        yield from (line for line in code.comments().splitlines() if line in theirs and PROSE.search(line))


def _same_figures(chinese: str, english: str) -> bool:
    """In any order, as a Chinese sentence may have another. A cell without words is the same in both."""
    return figures(chinese) == figures(english) if WORD.search(english) else chinese == english


def carried_over(page: Translated) -> str:
    """The Chinese page with the code and the figures of the English one. Comments on lines that stay are kept."""
    text, end = page.chinese, 0
    for chinese, english in page.pairs:
        fresh = chinese.text
        if len(chinese.codes) == len(english.codes):
            codes = iter(english.codes)
            fresh = FENCE.sub(lambda found: _code(Code(*found.groups()), next(codes)), fresh)  # noqa: B023
        if len(chinese.rows) == len(english.rows):
            fresh = _with_figures(fresh, english.rows)
        begin = text.index(chinese.text, end)
        text = text[:begin] + fresh + text[begin + len(chinese.text) :]
        end = begin + len(fresh)
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
    if not WORD.search(english):
        return english
    found = FIGURE.findall(english)
    same_order = len(found) == 1 or not CHINESE.search(chinese)
    if figures(chinese) == sorted(found) or len(found) != len(FIGURE.findall(chinese)) or not same_order:
        return chinese
    values = iter(found)
    return FIGURE.sub(lambda _: next(values), chinese)


def accepted(page: Translated) -> str:
    record = "".join(f"{digest} {title}\n" for title, digest in digests(page.english).items())
    return f"{RECORD.sub('', page.chinese).rstrip()}\n\n<!-- translated from {page.original}\n{record}-->\n"
