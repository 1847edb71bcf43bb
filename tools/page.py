"""What a page of the docs consists of: its sections, and in each of them code, tables and text.

A translation must have the same sections, code and figures as its original. Its text differs, so of the original's text
only a digest is kept: when it changes, the translation is stale.
"""

import hashlib
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

HEADING = re.compile(r"^(#+) (.+)$")
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
COMMENT = re.compile(r"<!--.*?-->\n*", re.DOTALL)
FIGURE = re.compile(r"\d+(?:[.,]\d+)*")
WORD = re.compile(r"[^\W\d_]")
LINK = re.compile(r"\]\(([^)\s]+)\)")
ITEM = re.compile(r"\s*([-*]|\d+\.) ")
PYTHON = {"python", "py"}
SHELL = {"sh", "bash"}


@dataclass(frozen=True)
class Code:
    """A fenced block. Its comments may be translated, nothing else."""

    language: str
    text: str

    def bare(self) -> str:
        """Each comment is only its sign."""
        return _split(self)[0]

    def comments(self) -> str:
        return _split(self)[1]

    def with_comments_of(self, other: "Code") -> "Code":
        """This code, with the other's comments on all lines that both have."""
        mine, its = self.bare().splitlines(), other.bare().splitlines()
        lines = self.text.splitlines()
        for begin, there, length in SequenceMatcher(None, mine, its, autojunk=False).get_matching_blocks():
            lines[begin : begin + length] = other.text.splitlines()[there : there + length]
        return Code(self.language, "".join(f"{line}\n" for line in lines))


@dataclass(frozen=True)
class Section:
    """From a heading to the next one."""

    level: int
    title: str
    text: str

    @property
    def codes(self) -> list[Code]:
        return [Code(*found.groups()) for found in FENCE.finditer(self.text)]

    @property
    def rows(self) -> list[list[str]]:
        """The cells of all table rows, without the lines under their heads."""
        lines = [line for line in FENCE.sub("", self.text).splitlines() if line.startswith("|")]
        return [cells(line) for line in lines if not re.fullmatch(r"[|: -]+", line)]

    @property
    def links(self) -> list[str]:
        return LINK.findall(FENCE.sub("", self.text))

    @property
    def anchor(self) -> str:
        return re.sub(r"[^\w -]", "", self.title.lower()).replace(" ", "-")

    @property
    def parts(self) -> list[str]:
        """What stands in it, in that order. A line that goes on with a paragraph or a list item is no part of its own."""
        found, before = [], ""
        for line in FENCE.sub("```", COMMENT.sub("\n", self.text)).splitlines():
            kind = _kind(line)
            goes_on = kind == before == "table" or (kind == "paragraph" and before in ("paragraph", "list item"))
            if kind and not goes_on:
                found.append(kind)
            before = kind
        return found

    def digest(self) -> str:
        """Of what a translator translates: the title, the text, the words of tables, the comments in code."""
        words = FENCE.sub(lambda found: Code(*found.groups()).comments(), COMMENT.sub("", self.text))
        lines = [" ".join(map(_words, cells(line))) if line.startswith("|") else line for line in words.splitlines()]
        return hashlib.sha256(" ".join([self.title, *" ".join(lines).split()]).encode()).hexdigest()[:12]


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip())[1:-1]]


def _kind(line: str) -> str:
    """What a line is, or begins; nothing if it is blank."""
    if not line.strip():
        return ""
    if line.startswith("```"):
        return "block of code"
    if line.startswith("|"):
        return "table"
    return "list item" if ITEM.match(line) else "paragraph"


def _words(cell: str) -> str:
    """A cell without its figures."""
    return FIGURE.sub("#", cell) if WORD.search(cell) else ""


def figures(cell: str) -> list[str]:
    return sorted(FIGURE.findall(cell))


def sections(text: str) -> list[Section]:
    """The sections of a page, in their order. What looks like a heading in a block of code is none.

    Text before the first heading is a section without a title.
    """
    found: list[tuple[int, str, list[str]]] = []
    in_code = False
    for line in text.splitlines(keepends=True):
        in_code ^= line.startswith("```")
        heading = None if in_code else HEADING.match(line.rstrip("\n"))
        if heading is not None:
            found.append((len(heading[1]), heading[2], []))
        elif found or line.strip():
            if not found:
                found.append((0, "", []))
            found[-1][2].append(line)
    return [Section(level, title, "".join(lines)) for level, title, lines in found]


def _split(code: Code) -> tuple[str, str]:
    """The code with bare comments, and the comments."""
    lines, comments = code.text.splitlines(), []
    for row, column in _comments(code):
        comments.append(lines[row][column:])
        lines[row] = f"{lines[row][:column].rstrip()}#"
    return "".join(f"{line}\n" for line in lines), "\n".join(comments)


def _comments(code: Code) -> list[tuple[int, int]]:
    """The line and the column where each begins."""
    if code.language in SHELL:
        found = [(row, re.search(r"(^|\s)#", line)) for row, line in enumerate(code.text.splitlines())]
        return [(row, each.end() - 1) for row, each in found if each]
    if code.language in PYTHON:
        return [(token.start[0] - 1, token.start[1]) for token in _tokens(code.text) if token.type == tokenize.COMMENT]
    return []


def _tokens(text: str) -> Iterator[tokenize.TokenInfo]:
    """A block may be a part of a program. After a part that is no Python, nothing counts as a comment."""
    try:
        yield from tokenize.generate_tokens(io.StringIO(text).readline)
    except (tokenize.TokenError, SyntaxError):
        return
