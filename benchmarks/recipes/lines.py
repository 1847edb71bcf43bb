"""Counts the lines of each recipe with bide, Celery and Dramatiq, and writes them into docs/recipes/index.md.

Counted is every line of code. Not counted: blank lines, comments, docstrings, imports, and the last lines, which only run
the recipe (`if __name__ == "__main__"`). All three are formatted by ruff with lines of 128 characters.
"""

import ast
import re
import tokenize
from io import StringIO
from pathlib import Path
from statistics import median

from benchmarks.recipes.stories import OUTBOX, STORIES

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PAGE = ROOT / "docs" / "recipes" / "index.md"
PART = re.compile(r"(<!-- counted: recipes -->\n).*?(<!-- end -->)", re.DOTALL)
FOLDERS = {"bide": ROOT / "examples" / "recipes", "Celery": HERE / "with_celery", "Dramatiq": HERE / "with_dramatiq"}
NO_CODE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}

DIFFERS = {
    "unpaid_order": "The others send before the commit, and leave the message when she pays.",
    "two_reminders": "The others send the next step after the commit, so it may be sent twice.",
    "confirm_delivery": "Celery looks at the table every minute. A message of Dramatiq can't be moved; it sends itself again.",
    "group_purchase": "Celery looks at the table every minute.",
    "limited_sale": "Celery looks at the table every minute.",
    "refund_poll": "With the others, an error and a pending refund count alike.",
    "remind_at_nine": "Celery looks at the table every minute. With Dramatiq, old messages stay, and do nothing.",
    "recall": "Celery looks at the table every minute. Dramatiq keeps a message for each visit.",
    "push_after_login": "With the others, one push an hour is a key in Redis. If the process dies after it, there is none.",
    "retry_ladder": "Celery has no dead letters; Dramatiq has no way to requeue them.",
    "sms": "Celery's limit is that of one worker process. With Dramatiq, what has no room is tried again at random.",
    "lock_conflict": "The others ask again each second, and renew no lock.",
    "ride_dispatch": "With the others, a circle may be sent twice, and an accepted ride's message stays.",
    "device_timer": "Celery looks at the table every minute.",
    "search_index": "The others send a message for each edit, and know no latest time.",
    "likes": "The others gather likes in a list of their own in Redis; Celery has batches in another package.",
    "spread": "The others send a second message for a counter that is waiting.",
    "outbox": "The others have a table and a relay of their own; Dramatiq's needs a process that calls it.",
}
"""How the versions differ, in a sentence."""


def counted(path: Path) -> int:
    """The lines of code in a file."""
    text = path.read_text(encoding="utf-8")
    lines = {
        line
        for token in tokenize.generate_tokens(StringIO(text).readline)
        if token.type not in NO_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import | ast.ImportFrom) or _documents(node) or _runs(node):
            assert isinstance(node, ast.stmt)
            lines -= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    return len(lines)


def _documents(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _runs(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) == "__name__ == '__main__'"


def table() -> str:
    """In Markdown, with the medians in its last line."""
    found = {name: [counted(folder / f"{name}.py") for folder in FOLDERS.values()] for name in (*STORIES, "outbox")}
    titles = {name: story.title for name, story in (*STORIES.items(), ("outbox", OUTBOX))}
    rows = [["recipe", *(f"{each}, lines" for each in FOLDERS), "how they differ"], ["---", "--:", "--:", "--:", "---"]]
    rows += [[titles[name], *map(str, counts), DIFFERS[name]] for name, counts in found.items()]
    middle = [f"{median(column):g}" for column in zip(*found.values(), strict=True)]
    rows.append(["**median**", *middle, ""])
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def written(text: str) -> str:
    """The page with its table as it should be."""
    return PART.sub(lambda found: f"{found[1]}{table()}{found[2]}", text)
