"""`make test-all`, in parts that are not run again."""

import subprocess
import sys
from pathlib import Path

import pytest

from tools.parts import FILES, ROOT, Part, files, grouped, main, parts

ONE, TWO = "import pathlib; pathlib.Path('../one').open('a').write('1')", "import sys; sys.exit(3)"
KNOWN = {"one": Part([sys.executable, "-c", ONE]), "two": Part([sys.executable, "-c", TWO])}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree whose files are all committed."""
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / ".gitignore").write_text("/build/\n")
    git(tree, "init", "-q")
    git(tree, "add", ".")
    git(tree, "commit", "-q", "-m", "first")
    return tree


def git(tree: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=tree, check=True)


def ran(root: Path) -> int:
    return len((root.parent / "one").read_text())


def test_what_has_passed_is_not_run_again_on_this_commit(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main([], root, KNOWN) == 1
    assert main([], root, KNOWN) == 1
    assert ran(root) == 1
    said = capfd.readouterr()
    assert "two: failed, with exit code 3" in said.out
    assert "Failed: two." in said.err
    assert main(["one"], root, KNOWN) == 0
    assert ran(root) == 2
    assert main(["--list"], root, KNOWN) == 0
    assert capfd.readouterr().out.splitlines()[-2:] == ["one            passed in 0.0 min", "two            –"]
    assert main([], root, {"one": KNOWN["one"]}) == 0
    assert "All parts have passed on" in capfd.readouterr().out
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "b", "--allow-empty"], cwd=root, check=True
    )
    assert main([], root, {"one": KNOWN["one"]}) == 0
    assert ran(root) == 3


def test_with_changes_nothing_is_noted(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (root / "new").touch()
    for times in (1, 2):
        assert main([], root, {"one": KNOWN["one"]}) == 0
        assert ran(root) == times
    assert "Something is not committed" in capfd.readouterr().out


def test_a_part_that_is_not_there_is_named_with_those_that_are(root: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["three"], root, KNOWN)
    assert "there is no part three; there is: one, two" in capfd.readouterr().err


def test_files_that_take_long_are_in_one_part_and_left_out_of_that_of_their_folder() -> None:
    known = parts(ROOT)
    for name in FILES:
        assert len(files(ROOT, name)) >= len(FILES[name])
        for file in files(ROOT, name):
            assert [each for each, part in known.items() if file in part.command] == [name]
            [left_out] = [part for part in known.values() if f"--ignore={file}" in part.command]
            assert str(Path(file).parent) in left_out.command


def test_each_folder_of_tests_is_in_one_part() -> None:
    folders = [folder for each in grouped(ROOT).values() for folder in each]
    assert sorted(folders) == sorted({str(path.parent.relative_to(ROOT)) for path in (ROOT / "tests").glob("*/test_*.py")})
    assert {"check", "bench-check", "lowest", "redis", "contract", "servers", "worker", "rest"} <= parts(ROOT).keys()
