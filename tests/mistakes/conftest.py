"""Runs the programs of examples/mistakes, and processes that use bide and are killed, each on the test's own server."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE = 60.0  # seconds, far more than anything here takes

Killed = Callable[..., bool]


def ran(name: str, **settings: str) -> str:
    """What a program of examples/mistakes prints."""
    command = [sys.executable, "-m", f"examples.mistakes.{name}"]
    env = {**os.environ, **settings}
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.rstrip("\n")


@pytest.fixture
def by_hand(redis_url: str) -> Callable[[str], str]:
    """Runs a program on the test's Redis, which is empty."""
    return lambda name: ran(name, REDIS_URL=redis_url)


def was_killed(program: str, *arguments: object) -> bool:
    """Whether a process was killed; the other way for it to end is in good order."""
    command = [sys.executable, "-c", program, *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=PATIENCE)
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return done.returncode != 0
