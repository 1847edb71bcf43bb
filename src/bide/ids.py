"""Ids of messages made in this process: short, sortable by birth, not to be guessed."""

import itertools
import os
import time
from collections.abc import Callable


def sequence() -> Callable[[], str]:
    """A source of ids that no other source gives: a random salt, then a count, so they sort in the order of birth."""
    salt = f"{int(time.time()):08x}{os.urandom(6).hex()}"
    count = itertools.count().__next__
    return lambda: f"{salt}{count():010x}"


def requests() -> Callable[[], str]:
    """A source of names for claims, that no other source gives."""
    name = os.urandom(6).hex()
    count = itertools.count(1).__next__
    return lambda: f"{name}.{count():x}"


def lane() -> str:
    """The name of a stream of operations that no other stream has."""
    return os.urandom(8).hex()
