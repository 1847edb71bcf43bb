"""The quickstart does what it says when its commands are typed."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / "quickstart.md", ROOT / "docs" / "zh" / "quickstart.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_one_message_is_delivered_one_is_cancelled_and_one_is_retried(page: Path, tmp_path: Path) -> None:
    text = page.read_text(encoding="utf-8")
    [module] = re.findall(r"^```python\n(# shop\.py\n.*?)^```$", text, re.DOTALL | re.MULTILINE)
    [worker_command] = re.findall(r"^bide (worker .*)$", text, re.MULTILINE)
    [script] = re.findall(r"^python (\w+\.py)$", text, re.MULTILINE)
    [stats] = re.findall(r"^bide (stats .*)$", text, re.MULTILINE)
    [promised] = re.findall(r"^```text\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "shop.py").write_text(module.replace('"1s"', '"10ms"'), encoding="utf-8")
    bide = [sys.executable, "-u", "-m", "bide"]

    worker = subprocess.Popen(
        [*bide, *worker_command.split()],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
    )
    assert worker.stderr is not None
    try:
        while "→" not in worker.stderr.readline():  # else, on a slow machine, both would be due before it looks
            assert worker.poll() is None
        sent = subprocess.run([sys.executable, script], cwd=tmp_path, check=True, capture_output=True, text=True)
        assert sent.stdout == "CancelResult.CANCELLED\n"
        assert worker.stdout is not None
        printed = [worker.stdout.readline(), worker.stdout.readline()]
    finally:
        worker.terminate()
        rest, log = worker.communicate()
    assert printed == promised.splitlines(keepends=True)
    assert (rest, worker.returncode) == ("", 0)
    assert "failed in attempt 1 of 3" in log
    counts = subprocess.run([*bide, *stats.split()], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
    assert re.search(r"^scheduled +0$", counts, re.MULTILINE)
    assert re.search(r"^dead +0$", counts, re.MULTILINE)
