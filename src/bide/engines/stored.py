"""What several engines store alike: headers, and records of attempts that failed.

Where an engine keeps them as one text, each record stands behind its length. An engine writes records of its own of leases
that ended; all others are whatever the caller made of them.
"""

from collections.abc import Mapping

import msgspec

UNREADABLE = "Its headers are not a JSON object of texts."
"""Said of a message whose headers another program has written."""

_decode = msgspec.json.Decoder(dict[str, str]).decode
MOST = 10  # records of a message
ROOM = 16_384  # bytes of them together, unless the last one alone is longer
LONGEST = 8_192  # bytes of a record that callers may give
_LENGTH = 2  # bytes that tell the length of a record


def read_headers(text: str | bytes | None) -> Mapping[str, str] | None:
    """None if they can't be read."""
    try:
        return _decode(text) if text else {}
    except (ValueError, RecursionError):  # of msgspec, too
        return None


def with_record(kept: bytes, record: bytes) -> bytes:
    """What is kept when this one has come."""
    records = [*records_of(kept), record][-MOST:]
    while len(records) > 1 and sum(map(len, records)) > ROOM:
        del records[0]
    return b"".join(len(each).to_bytes(_LENGTH, "big") + each for each in records)


def records_of(kept: bytes) -> list[bytes]:
    """Oldest first."""
    found, at = list[bytes](), 0
    while at < len(kept):
        begin = at + _LENGTH
        at = begin + int.from_bytes(kept[at:begin], "big")
        found.append(kept[begin:at])
    return found


def lease_ended(attempt: int, began: int) -> bytes:
    """The record of an attempt of which nobody has told the end."""
    return b'{"attempt":%d,"began":%d}' % (attempt, began)
