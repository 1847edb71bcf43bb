"""Ids of messages and requests made in this process: short, sortable by birth, not to be guessed."""

import itertools
import secrets
import time
from collections.abc import Callable


def sequence() -> Callable[[], str]:
    """A source of ids that no other source gives: a random salt, then a count, so they sort in the order of birth."""
    salt = f"{int(time.time()):08x}{secrets.token_hex(6)}"
    count = itertools.count().__next__
    return lambda: f"{salt}{count():010x}"


def request_id() -> str:
    """Names one request, so that repeating it after a lost answer is not a second one."""
    return secrets.token_hex(8)
