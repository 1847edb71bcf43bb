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


def has_end(query: str) -> bool:
    """Whether a query says itself how many rows it finds, or that it locks them."""
    return _ENDS.search(re.sub(_PASSED_OVER, "''", query)) is not None
