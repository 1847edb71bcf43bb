"""Bodies as they are written on a command line or in a file: JSON, or text if the writer says so."""

import msgspec


class BodyError(ValueError):
    """This is no body; the text says why and what would be one."""


def body_of(written: str | bytes, *, text: bool) -> object:
    """Raises BodyError."""
    try:
        raw = written.encode() if isinstance(written, str) else written
        return raw.decode() if text else msgspec.json.decode(raw)
    except UnicodeError:
        raise BodyError("it is not UTF-8") from None
    except RecursionError:
        raise BodyError("it is nested too deeply") from None
    except (msgspec.DecodeError, ValueError) as error:
        raise BodyError(f"it is not JSON ({error})") from None
