"""Starts `bide metrics` for tests."""

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import BIDE, plain_environment
from tests.servers.server import free_port
from tests.worker.processes import PATIENCE


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Any]:
    """Starts `bide metrics`, which has ended in the end, as it should."""
    started: list[subprocess.Popen[str]] = []

    def start(*arguments: str) -> int:
        port = free_port()
        command = [*BIDE, "metrics", *arguments, "--port", f"127.0.0.1:{port}"]
        process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=plain_environment())
        started.append(process)
        return port

    yield start
    for each in started:
        each.terminate()
        _, err = each.communicate(timeout=PATIENCE)
        assert (each.returncode, "Traceback" in err) == (0, False), err
