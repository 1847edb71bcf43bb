"""The wheel, built and installed into an empty environment: it has all that it needs, and says its version."""

import json
import os
import subprocess
import sys
import tempfile
import venv
import zipfile
from pathlib import Path
from typing import Any

import pytest

import bide
from tests.worker.processes import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).resolve().parents[2]
SHOP = """
import os
from bide import AsyncQueue

queue = AsyncQueue("sqlite:///shop.db")

@queue.task("order.pack")
async def pack(order: int) -> None:
    open("packed.part", "w").write(str(order))
    os.rename("packed.part", "packed")
"""


def run(*words: str | Path, **more: object) -> str:
    """Outside the checkout, so that nothing of it is found by chance."""
    options: dict[str, Any] = {
        "cwd": tempfile.gettempdir(),
        "env": clean(),
        "check": True,
        "stdout": subprocess.PIPE,
        "text": True,
    } | more
    done: subprocess.CompletedProcess[str] = subprocess.run([*words], **options)  # noqa: PLW1510  (it is among the options)
    return done.stdout


def clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in ("BIDE_URL", "PYTHONPATH")}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    run(sys.executable, "-m", "pip", "--quiet", "wheel", "--no-deps", "--wheel-dir", folder, ROOT)
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def programs(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(folder, with_pip=True)
    run(folder / "bin" / "python", "-m", "pip", "--quiet", "install", f"{wheel}[cli]")
    return folder / "bin"


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    tracked = run("git", "ls-files", "src/bide", cwd=ROOT).split()
    assert {name.removeprefix("src/") for name in tracked} <= set(zipfile.ZipFile(wheel).namelist())


def test_it_says_its_version_and_no_commit(programs: Path, wheel: Path) -> None:
    assert run(programs / "bide", "--version") == f"bide {bide.__version__}\n"
    code = "import bide, importlib.metadata as m; print(bide.__version__, m.version('bide'))"
    assert run(programs / "python", "-c", code).split() == [bide.__version__] * 2
    assert f"-{bide.__version__}-" in wheel.name


def test_it_sends_a_message_that_a_worker_handles(programs: Path, tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    url = f"sqlite:///{tmp_path}/shop.db"
    sent = json.loads(run(programs / "bide", "send", "order.pack", '{"order": 42}', "--url", url, "--json"))
    assert sent["outcome"] == "created"
    worker = subprocess.Popen([programs / "bide", "worker", "shop:queue"], cwd=tmp_path, env=clean(), stderr=subprocess.PIPE)
    try:
        until(lambda: (tmp_path / "packed").exists() or worker.poll() is not None)
        worker.terminate()
        _, told = worker.communicate(timeout=60)
    finally:
        worker.kill()
    assert (tmp_path / "packed").read_text() == "42"
    assert (worker.returncode, told.decode().splitlines()[0]) == (0, f"bide {bide.__version__} worker")
