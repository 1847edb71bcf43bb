"""Which file a URL means, and who may read it."""

import os
import stat
from pathlib import Path

import pytest

from bide import BadUrl, Queue


def test_sqlites_own_name_for_memory_makes_no_file_and_names_the_memory_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadUrl, match="memory://"):
        Queue("sqlite:///:memory:")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="modes are of POSIX")
def test_a_file_that_is_made_through_a_link_is_for_its_user_alone(tmp_path: Path) -> None:
    link, target = tmp_path / "link.db", tmp_path / "target.db"
    link.symlink_to(target)
    before = os.umask(0o022)
    try:
        with Queue(f"sqlite:///{link}") as queue:
            queue.send("t", "secret")
            made = {each.name: stat.S_IMODE(each.stat().st_mode) for each in tmp_path.iterdir() if not each.is_symlink()}
    finally:
        os.umask(before)
    assert made == dict.fromkeys(["target.db", "target.db-wal", "target.db-shm"], 0o600)
