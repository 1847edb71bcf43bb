"""Ids of messages made in this process: short, sortable by birth, not to be guessed."""

import itertools
import os
import re
import socket
import time
from collections.abc import Callable

HOST = 32  # characters of a machine's name, as names of claims are stored


def sequence() -> Callable[[], str]:
    """A source of ids that no other source gives: a random salt, then a count, so they sort in the order of birth."""
    salt = f"{int(time.time()):08x}{os.urandom(6).hex()}"
    return map((salt + "{:010x}").format, itertools.count()).__next__


def process_name(pid: int) -> str:
    """What people know a process of this machine by: `web-3:4711`."""
    host = re.sub(r"[^A-Za-z0-9_-]", "_", socket.gethostname().partition(".")[0])[:HOST] or "localhost"
    return f"{host}:{pid}"


def requests() -> Callable[[], str]:
    """A source of names for claims, that no other source gives. They begin with the name of this process."""
    source = f"{process_name(os.getpid())}/{os.urandom(6).hex()}"
    return map((source + ".{:x}").format, itertools.count(1)).__next__


def worker_of(request: str) -> str:
    """Who made a claim of this name: a process, or what an older release told processes apart by."""
    process, mark, _ = request.partition("/")
    return process if mark else request.partition(".")[0]


def lane() -> str:
    """The name of a stream of operations that no other stream has."""
    return os.urandom(8).hex()
