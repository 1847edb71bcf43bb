"""Keeps secrets out of everything that people may read: reprs, errors, logs."""

import json
import re
from collections.abc import Iterable


class Secret:
    """Holds a text that nothing shows: only `reveal` gives it back."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def redacted(text: str, secrets: Iterable[str]) -> str:
    """The text with *** in place of each secret: raw, percent-encoded, or escaped as repr and JSON do, in any mixture."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):  # a longer one may hold a shorter one
        text = re.sub("".join(map(_spellings, secret)), "***", text)
    return text


def _spellings(char: str) -> str:
    """A pattern of all the ways to write one character: people encode a part of a password only, as they please."""
    encoded = char.encode("utf-8", "surrogatepass")
    escaped = {
        "".join(f"%{byte:02x}" for byte in encoded),  # in a URL
        "".join(f"\\x{byte:02x}" for byte in encoded),  # in the repr of bytes
        ascii(char)[1:-1],  # in a repr, or in ascii()
        json.dumps(char)[1:-1],
        f"\\{char}",  # a quote in a repr that holds both kinds
    }
    if char == " ":
        escaped.add("+")  # in a form
    longest_first = sorted(escaped - {char}, key=len, reverse=True)
    return f"(?:(?i:{'|'.join(map(re.escape, longest_first))})|{re.escape(char)})"
