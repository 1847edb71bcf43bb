"""Which version of bide this is. Between releases it is the next one, with `.dev0`; a git checkout also knows its commit."""

import os  # and not pathlib, which takes longer to import than the rest of `import bide`

__version__ = "0.2.0.dev0"
DIGITS = 9  # of a commit


def exact() -> str:
    """The version, and where bide runs from its own git checkout between releases, the commit: `0.2.0.dev0+3f8967e4a`.

    Changes that were not committed are not seen. Nothing is raised, and git is not run.
    """
    if ".dev" not in __version__:
        return __version__
    commit = _checked_out(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    return __version__ if commit is None else f"{__version__}+{commit[:DIGITS]}"


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
