"""`bide adopt` without the driver of its source: it says which package to install."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.running import TIMEOUT

WITHOUT = "import sys; sys.modules[sys.argv[1]] = None; from bide.cli import main; sys.exit(main(['adopt', *sys.argv[2:]]))"


@pytest.mark.parametrize(
    ("package", "extra", "command"),
    [
        ("redis", "redis", ("redis-zset", "delayed", "--source", "redis://localhost/0")),
        ("psycopg", "postgres", ("table", "--query", "select 1", "--source", "postgres://localhost/old")),
        ("aiormq", "rabbitmq", ("rabbitmq-ttl", "wait", "--source", "amqp://localhost/")),
    ],
)
def test_a_source_without_its_driver_names_the_pip_line(
    folder: Path, package: str, extra: str, command: tuple[str, ...]
) -> None:
    line = [sys.executable, "-c", WITHOUT, package, *command, "--topic", "t", "--dry-run"]
    ended = subprocess.run(line, capture_output=True, text=True, timeout=TIMEOUT, check=False, cwd=folder)
    said = f'bide: The source needs the package {package}: pip install "bide[{extra}]"\n'
    assert (ended.returncode, ended.stdout, ended.stderr) == (1, "", said)
