"""Names that tell things apart: ids of messages, not to be guessed; names of claims and processes; bide's exact version."""

import itertools
import os
import re
import socket
import time
from collections.abc import Callable

VERSION = "0.2.0.dev0"
HOST = 32  # characters of a machine's name, as names of claims are stored
DIGITS = 9  # of a commit


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


def exact_version(version: str = VERSION) -> str:
    """The version of bide, and where it runs from its own git checkout between releases, the commit: `0.2.0.dev0+3f8967e4a`.

    Changes that were not committed are not seen. Nothing is raised, and git is not run.
    """
    if ".dev" not in version:
        return version
    commit = _checked_out(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    return version if commit is None else f"{version}+{commit[:DIGITS]}"


def _checked_out(root: str) -> str | None:
    """The commit of bide's checkout; None if this folder is none, or is one of another project that has a copy of bide."""
    try:
        if 'name = "bide"' in _read(root, "pyproject.toml"):
            return _commit(os.path.join(root, ".git"))
    except (OSError, ValueError):
        pass
    return None


def _commit(git: str) -> str | None:
    """None where git stores it in a way that is not read here."""
    if os.path.isfile(git):  # of a worktree or a submodule: it names the folder
        git = os.path.join(os.path.dirname(git), _read(git).removeprefix("gitdir:").strip())
    head = _read(git, "HEAD")
    if not head.startswith("ref:"):
        return _hash(head)
    branch = head.removeprefix("ref:").strip()
    shared = os.path.join(git, _read(git, "commondir")) if os.path.exists(os.path.join(git, "commondir")) else git
    for folder in (git, shared):
        if os.path.isfile(os.path.join(folder, branch)):
            return _hash(_read(folder, branch))
    for line in _read(shared, "packed-refs").splitlines():
        commit, _, name = line.partition(" ")
        if name == branch:
            return _hash(commit)
    return None


def _read(*path: str) -> str:
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read().strip()


def _hash(text: str) -> str | None:
    return text if len(text) in (40, 64) and set(text) <= set("0123456789abcdef") else None
