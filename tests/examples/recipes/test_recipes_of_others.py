"""The recipes of Celery and Dramatiq, by which the docs count lines: they can be imported. `python -m benchmarks.recipes --run
celery dramatiq` runs them, too."""

import os
import subprocess

import pytest

from benchmarks.recipes.environment import installed
from benchmarks.recipes.lines import DIFFERS
from benchmarks.recipes.running import ROOT

IMPORT = """
import importlib, sys

for name in sys.argv[2:]:
    importlib.import_module(f"benchmarks.recipes.with_{sys.argv[1]}.{name}")
    if sys.argv[1] == "dramatiq":
        sys.modules["dramatiq"].get_broker().actors.clear()  # some have the same names
"""


@pytest.mark.parametrize("system", ["celery", "dramatiq"])
def test_they_can_be_imported(system: str) -> None:
    programs = installed()
    if programs is None:
        pytest.skip("their environment is not here: python -m benchmarks.recipes --run celery dramatiq makes it")
    command = [str(programs / "python"), "-W", "error", "-c", IMPORT, system, *DIFFERS]
    ended = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": "."}, capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
