"""The programs of PostgreSQL, the user who runs them, and the folder of an empty server, which is made once and then copied."""

import atexit
import ctypes
import functools
import os
import pwd
import shutil
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TypedDict

from tests.servers.programs import postgres_folder
from tests.servers.server import TAIL, NotStarted, new_folder

USERS = ("postgres", "nobody")  # root may not run it, so the first of these does


class AsUser(TypedDict, total=False):
    """What `subprocess` takes to run a program as somebody else."""

    user: int
    group: int
    extra_groups: list[int]


def as_user() -> AsUser:
    """For programs that refuse to run as root. Empty for all who are not root."""
    if os.geteuid():
        return {}
    entry = _who()
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def hand_over(path: Path) -> None:
    """Make a file or folder belong to the user who runs the programs."""
    if not os.geteuid():
        os.chown(path, _who().pw_uid, _who().pw_gid)


def program(name: str) -> str:
    """The path of one of PostgreSQL's programs."""
    folder = postgres_folder()
    if folder is None:
        raise NotStarted("PostgreSQL is not here")
    return str(folder / name)


def run(*command: str | Path, cwd: Path) -> None:
    """Run one of PostgreSQL's programs to its end."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, **as_user())
    if done.returncode:
        raise NotStarted(
            f"{Path(command[0]).name} failed, with exit code {done.returncode}:\n{(done.stdout + done.stderr)[-TAIL:]}"
        )


def copy_of_data(folder: Path) -> None:
    """The data of a server that is empty. Ten times as fast as to make it."""
    run("cp", "-R", _empty_data(program("initdb")), folder, cwd=folder.parent)
    folder.chmod(0o700)


def forget_memory(data: Path) -> None:
    """Remove the small segment of shared memory that a killed server leaves, and that its next start would remove."""
    with suppress(FileNotFoundError):
        lines = (data / "postmaster.pid").read_text(encoding="utf-8").splitlines()
        if len(lines) > 6:
            ctypes.CDLL(None).shmctl(int(lines[6].split()[1]), 0, None)  # 0 is IPC_RMID


@functools.cache
def _empty_data(initdb: str) -> Path:
    folder = new_folder("bide-initdb-")
    atexit.register(_remove, folder, os.getpid())
    hand_over(folder)
    data = folder / "data"
    run(initdb, "-D", data, "--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-locale", "--no-sync", cwd=folder)
    return data


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # and not one that it has forked
        shutil.rmtree(folder, ignore_errors=True)


@functools.cache
def _who() -> pwd.struct_passwd:
    for name in USERS:
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise NotStarted("PostgreSQL does not run as root, and there is no user `postgres` or `nobody` here")
