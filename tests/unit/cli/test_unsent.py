"""The command that sends lines again which may not have been sent."""

import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from bide import OutcomeUnknown
from bide.cli.send_file import Unsent


@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("many", [40, 120_000])
def test_it_prints_the_lines_however_many_they_are(
    many: int, rest: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    file = tmp_path / "two words.txt"
    file.write_text("".join(f"line {n}\n" for n in range(1, many + 3)))
    unsent = Unsent(str(file), "cat #", repeatable=False)
    unsent.some(OutcomeUnknown("?", answers=[None, 1] * (many // 2)), range(1, many + 1), many)
    found = re.search(r": ((sed|awk) .*)$", unsent.again(rest=rest))
    assert found is not None
    assert len(found[1]) < 2_500
    told = subprocess.run(found[1], shell=True, check=True, capture_output=True, text=True).stdout
    expected = [*range(1, many, 2), *([many + 1, many + 2] if rest else [])]
    assert told.splitlines() == [f"line {n}" for n in expected]
