"""The Python with which a way runs: that of this process, or of an environment with its package."""

import fcntl
import sys
from pathlib import Path

from benchmarks.peers.install import environment
from benchmarks.peers.peer import BUILD

PACKAGES = {
    "ttl_dead_letter": ("pika", {"pip": ["pika==1.4.4"]}),
    "ttl_queues": ("pika", {"pip": ["pika==1.4.4"]}),
    "celery_eta": ("celery", None),
}
"""The name of the environment, and its packages; without them they are those of the peers of that name."""


def python_of(way: str) -> Path:
    """Makes the environment, if it is not there. Raises NotInstalled."""
    if way not in PACKAGES:
        return Path(sys.executable)
    name, packages = PACKAGES[way]
    BUILD.mkdir(parents=True, exist_ok=True)
    with (BUILD / f"{name}.lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of tests need it at once
        return environment(name, packages) / "bin" / "python"
