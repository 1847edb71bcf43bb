"""What the tests of the command line share."""

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from bide import Queue
from bide.cli import main
from tests.cli.running import BIDE, TIMEOUT, AtTerminal, Bide, Ended, Terminal, plain_environment


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder that is the current one, where nothing says where messages live."""
    monkeypatch.chdir(tmp_path)
    for name in os.environ.keys() - plain_environment().keys():
        monkeypatch.delenv(name)
    return tmp_path


@pytest.fixture
def queue(folder: Path) -> Iterator[Queue]:
    """The queue that the command finds when it is not told."""
    with Queue(f"sqlite:///{folder}/bide.db") as made:
        yield made


@pytest.fixture
def bide(folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Bide:
    """Runs a command line in this process."""

    def run(*arguments: str, stdin: str | bytes = "") -> Ended:
        raw = stdin.encode() if isinstance(stdin, str) else stdin
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(raw)))
        capsys.readouterr()
        code = main(arguments)
        out, err = capsys.readouterr()
        return Ended(code, out, err)

    return run


@pytest.fixture
def bide_process(folder: Path) -> Bide:
    """Runs a command line in a process of its own, with pipes."""

    def run(*arguments: str, stdin: str = "", **environment: str) -> Ended:
        ended = subprocess.run(
            [*BIDE, *arguments],
            input=stdin.encode(),
            capture_output=True,
            check=False,
            timeout=TIMEOUT,
            cwd=folder,
            env=plain_environment(**environment),
        )
        return Ended(ended.returncode, ended.stdout.decode(), ended.stderr.decode())

    return run


@pytest.fixture
def at_terminal(folder: Path) -> AtTerminal:
    def run(*arguments: str, out_is_file: bool = False, columns: int = 80, **environment: str) -> Terminal:
        return Terminal(folder, arguments, out_is_file=out_is_file, columns=columns, **environment)

    return run
