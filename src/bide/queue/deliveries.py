"""One handing-out of a message, and how to end it."""

import asyncio

STOPS = (asyncio.CancelledError, KeyboardInterrupt, GeneratorExit)
"""Not failures of the work: somebody stopped it from outside."""

ERROR_LENGTH = 500


def error_text(error: object) -> str | None:
    """What to keep of an error, for people to read."""
    if error is None:
        return None
    try:
        text = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
    except KeyboardInterrupt:
        raise
    except BaseException:  # what somebody else's __str__ does
        text = type(error).__name__
    return text.encode("utf-8", "replace").decode()[:ERROR_LENGTH]
