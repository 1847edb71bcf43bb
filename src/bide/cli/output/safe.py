"""Text that others wrote, made safe to show: nothing in it can move a cursor, fake a line or turn text around."""

import re
from typing import Any

import msgspec

_PASSWORD = re.compile(r"(?<=://)\S*(?=@)|(?<=[?&]password=)[^&\s]+")


def escaped(text: str) -> str:
    """Every character that is not plainly visible as an escape, the way JSON writes it."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def without_passwords(text: str) -> str:
    """URLs in a text lose what stands before their host, and a password among their options."""
    return _PASSWORD.sub("…", text)


def json_text(value: Any, *, ascii_only: bool = False) -> str:
    """A value as one line of JSON that is as safe as it is valid."""
    text = escaped(msgspec.json.encode(value).decode())
    return "".join(each if each.isascii() else _escape(each) for each in text) if ascii_only else text


def body_text(body: Any) -> str:
    """A body as one line: as JSON, or the bytes of one that can't be decoded."""
    return repr(body) if isinstance(body, bytes) else json_text(body)


def body_lines(body: Any) -> list[str]:
    """A body as lines to read at leisure."""
    if isinstance(body, bytes):
        return [repr(body)]
    return [escaped(line) for line in msgspec.json.format(msgspec.json.encode(body), indent=2).decode().split("\n")]


def _escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))
