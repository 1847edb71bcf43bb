"""What is read in the SQL of the command line. Texts, quoted names and comments in it are passed over."""

import re

_PASSED_OVER = r"""(?xs)
    \b[eE]'(?:[^'\\]|\\.|'')*'   # E'it\'s'
    | '(?:[^']|'')*'
    | "[^"]*" | `[^`]*`
    | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$
    | --[^\n]* | /\*.*?\*/
"""
_ENDS = re.compile(r"\b(limit|offset|for\s+(update|share|no\s+key\s+update|key\s+share))\b[^()]*$", re.IGNORECASE)
_NAMED = re.compile(rf"{_PASSED_OVER} | (?<![:\w]):(?P<name>[A-Za-z_]\w*)")  # :id, and not the type in id::text


def has_end(query: str) -> bool:
    """Whether a query says itself how many rows it finds, or that it locks them."""
    return _ENDS.search(re.sub(_PASSED_OVER, "''", query)) is not None


def named_in(statement: str) -> list[str]:
    """The names of a statement that stand for values, in their order."""
    return [found["name"] for found in _NAMED.finditer(statement) if found["name"]]


def for_psycopg(statement: str) -> str:
    """A statement with `%(name)s` in place of `:name`."""
    return _NAMED.sub(lambda found: f"%({found['name']})s" if found["name"] else found[0], statement.replace("%", "%%"))
