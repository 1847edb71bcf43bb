"""Amounts as people read them."""

_UNITS = (("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))
_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB")


def span(seconds: float) -> str:
    """A stretch of time in its two largest units; nothing when it is under half a second."""
    left = round(seconds)
    parts: list[str] = []
    for unit, size in _UNITS:
        count, left = divmod(left, size)
        if count or parts:
            parts.append(f"{count}{unit}" if count else "")
    return " ".join(part for part in parts[:2] if part)


def plural(count: int, noun: str) -> str:
    """A count with its noun: "1 message", "2,500 messages"."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def size(count: float) -> str:
    """A number of bytes, to three digits: "812 bytes", "1.21 MiB", "48.3 GiB"."""
    place = 0
    while count >= 1_000 and place + 1 < len(_SIZES):
        count, place = count / 1_024, place + 1
    digits = 0 if place == 0 or count >= 99.95 else 1 if count >= 9.995 else 2
    return f"{count:,.{digits}f} {_SIZES[place]}"
