"""The environment in which the recipes of Celery and Dramatiq run: both, and psycopg."""

from pathlib import Path

from benchmarks.peers.install import environment
from benchmarks.peers.peer import BUILD, pins

NAME = "recipes"


def packages() -> list[str]:
    """As they are pinned for the benchmarks."""
    psycopg = [each for each in pins()["procrastinate"]["pip"] if each.startswith("psycopg")]
    return sorted({*pins()["celery"]["pip"], *pins()["dramatiq"]["pip"], *psycopg})


def installed() -> Path | None:
    """The folder of its programs, if it has been made."""
    folder = BUILD / NAME / "bin"
    return folder if folder.exists() else None


def install() -> Path:
    """Makes it, if it is not there. Raises NotInstalled."""
    return environment(NAME, {"pip": packages()}) / "bin"
