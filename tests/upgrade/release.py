"""Two releases: one before, built from its commit into an environment of its own, and the one that is tested here.

before.do("send", url=url)      # a step of steps.py, run on that release; gives what the step returns
with before.busy("work", url=url):
    ...                         # meanwhile; afterwards the step is told to stop
"""

import fcntl
import io
import json
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers.programs import lacking

ROOT = Path(__file__).resolve().parents[2]
FIRST = "2d73b14d09c7e806ad8ee186b24d3c7e6c22f1fc"  # before messages of Redis lay in groups, and before there was PostgreSQL
NEAREST = "f76ea47e4f017a86ad8a4be3f463e603a99fa092"  # before workers handled what a claim brought as one lot
PLACES = ("redis", "redis, several shards", "sqlite")  # that both of them know
STEPS = Path(__file__).with_name("steps.py")
PATIENCE = 120.0  # seconds for one step


class Release(NamedTuple):
    name: str
    python: Path

    def do(self, step: str, **arguments: object) -> Any:
        """What the step returns. An error of the step is an error here."""
        with self._started(step, arguments) as process:
            return _answer(process)

    @contextmanager
    def busy(self, step: str, **arguments: object) -> Iterator[Callable[[], object]]:
        """Run a step that is ready inside the block, and goes on until its input ends. Gives what sends it a line."""
        with self._started(step, arguments) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n", f"{self.name}: the step {step} did not begin"
            yield lambda: print(file=process.stdin, flush=True)
            assert _answer(process) is None

    @contextmanager
    def _started(self, step: str, arguments: object) -> Iterator[subprocess.Popen[str]]:
        command = [str(self.python), "-P", str(STEPS), step, json.dumps(arguments)]
        with subprocess.Popen(
            command, cwd=tempfile.gettempdir(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as process:
            try:
                yield process
            finally:
                process.kill()


def _answer(process: subprocess.Popen[str]) -> Any:
    said, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, f"a step failed: {process.args!r}"
    return json.loads(said)


def present() -> Release:
    return Release("this release", Path(sys.executable))


def former(commit: str = FIRST) -> Release:
    """A release before. It is built when it is asked for the first time, which takes half a minute."""
    _look_for(commit)
    folder = ROOT / "build" / "upgrade" / commit[:12]
    folder.mkdir(parents=True, exist_ok=True)
    release, done = Release("the release before", folder / "venv" / "bin" / "python"), folder / "done"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several processes of tests need it at once
        if not done.exists():
            _build(commit, folder)
            done.touch()
    return release


def _look_for(commit: str) -> None:
    if not (ROOT / ".git").exists():
        lacking("this is not a clone of the repository, so it does not have the release before")
    if _git("cat-file", "-e", f"{commit}^{{commit}}").returncode != 0:
        lacking(f"this clone has no commit {commit[:7]}, the release before: `git fetch --unshallow` fetches it")


def _build(commit: str, folder: Path) -> None:
    with tempfile.TemporaryDirectory() as source:
        archive = _git("archive", "--format=tar", commit)
        assert archive.returncode == 0, archive.stderr.decode()
        with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
            files.extractall(source, filter="data")
        wheel_of = ["-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", str(folder), source]
        subprocess.run([sys.executable, *wheel_of], check=True)
    [wheel] = folder.glob("*.whl")
    venv.create(folder / "venv", clear=True, with_pip=True)
    install = ["-m", "pip", "--quiet", "install", f"{wheel}[redis,postgres]" if commit == NEAREST else f"{wheel}[redis]"]
    subprocess.run([folder / "venv" / "bin" / "python", *install], check=True)


def _git(*words: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, check=False)
