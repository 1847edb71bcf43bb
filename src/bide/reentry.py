"""Finds out that a thread would wait for itself: in a signal handler that interrupted a call of bide."""

import threading

from bide.errors import Unavailable


def refuse_reentry(lock: threading.RLock) -> None:
    """Before taking the lock: raise when this very thread holds it, since nothing would ever release it.

    It is asked beforehand, so that the lock itself can be taken by a `with` that no Ctrl-C comes between.
    """
    if is_own(lock):
        raise Unavailable(
            "This thread is in the middle of another call of bide, which a signal handler or a destructor has interrupted: "
            "waiting for it would last for ever, so nothing was done. In the handler only set a flag or put the work into a "
            "queue.SimpleQueue, and call bide from the code that looks at it."
        )


def is_own(lock: threading.RLock) -> bool:
    """Whether this thread holds the lock."""
    own: bool = lock._is_owned()  # type: ignore[attr-defined]
    return own
