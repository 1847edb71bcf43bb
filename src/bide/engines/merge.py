"""Bodies of several sends as one list: each is sent as a list of one, and engines, which read no bodies, join the texts."""

_SPACES = b" \t\r\n"


def listed(body: bytes) -> bytes:
    """A list of one JSON body."""
    return b"[%b]" % body


def joined(held: bytes, new: bytes) -> bytes | None:
    """The list that holds what both have; None when the first is no list, or none as bide and most others write it."""
    if held == b"[]":
        return new
    if held[:1] != b"[" or held[-1:] != b"]" or held[-2] in _SPACES:
        return None
    return b"%b,%b" % (held[:-1], new[1:])
