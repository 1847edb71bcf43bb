"""The version that bide says it is: between releases, a checkout says its commit too."""

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import bide
from bide import ids
from bide.ids import exact_version

DEV = "0.2.0.dev0"
COMMIT = "3f8967e4a0" * 4
Checkout = Callable[..., Path]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkout:
    """Makes bide run from a folder, as its own checkout."""

    def make(folder: Path = tmp_path, *, project: str = "bide") -> Path:
        package = folder / "src" / "bide"
        package.mkdir(parents=True)
        (folder / "pyproject.toml").write_text(f'[project]\nname = "{project}"\n')
        monkeypatch.setattr(ids, "__file__", str(package / "ids.py"))
        return folder

    return make


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=test", "-c", "user.email=test@example.org")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(checkout: Checkout) -> Path:
    folder = checkout()
    git(folder, "init", "--quiet")
    git(folder, "commit", "--quiet", "--allow-empty", "--message", "first")
    return folder


def expected(folder: Path) -> str:
    return f"0.2.0.dev0+{git(folder, 'rev-parse', 'HEAD')[:9]}"


def test_a_checkout_says_the_commit_of_its_branch(repository: Path) -> None:
    before = exact_version(DEV)
    assert before == expected(repository)
    git(repository, "commit", "--quiet", "--allow-empty", "--message", "second")
    assert exact_version(DEV) == expected(repository) != before


def test_a_checkout_says_its_commit_without_a_branch_and_with_packed_refs(repository: Path) -> None:
    git(repository, "pack-refs", "--all")
    assert exact_version(DEV) == expected(repository)
    git(repository, "checkout", "--quiet", "--detach")
    assert exact_version(DEV) == expected(repository)


def test_a_worktree_says_the_commit_of_its_own_branch(repository: Path, checkout: Checkout) -> None:
    git(repository, "worktree", "add", "--quiet", "-b", "other/branch", str(repository / "tree"))
    tree = checkout(repository / "tree")
    git(tree, "commit", "--quiet", "--allow-empty", "--message", "here only")
    assert exact_version(DEV) == expected(tree) != expected(repository)


@pytest.mark.usefixtures("repository")
def test_a_release_says_no_commit() -> None:
    assert exact_version("0.2.0") == "0.2.0"


def test_a_copy_in_the_checkout_of_another_project_does_not_say_its_commit(checkout: Checkout) -> None:
    folder = checkout(project="shop")
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_text(COMMIT)
    assert exact_version(DEV) == "0.2.0.dev0"


@pytest.mark.parametrize(
    "head", ["", "ref: refs/heads/.invalid", "ref: refs/heads/main", "no commit at all", COMMIT[:-1] + "x", "\udc80"]
)
def test_what_git_stores_in_another_way_is_left_out(checkout: Checkout, head: str) -> None:
    folder = checkout()
    (folder / ".git").mkdir()
    (folder / ".git" / "HEAD").write_bytes(head.encode("utf-8", "surrogateescape"))
    assert exact_version(DEV) == "0.2.0.dev0"


def test_without_git_there_is_no_commit(checkout: Checkout) -> None:
    checkout()
    assert exact_version(DEV) == "0.2.0.dev0"


def test_the_version_is_one_that_pip_can_compare() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev0)?", bide.__version__)
    assert re.fullmatch(r"\d+\.\d+\.\d+(\.dev0(\+[0-9a-f]{9})?)?", exact_version(bide.__version__))


def test_the_command_says_the_commit_too() -> None:
    told = subprocess.run([sys.executable, "-m", "bide", "--version"], check=True, capture_output=True, text=True)
    assert told.stdout == f"bide {exact_version(bide.__version__)}\n"
