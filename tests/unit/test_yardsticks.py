"""A branch that makes a yardstick worse is told which and by how much; one that changes the public API sees how."""

import json
from pathlib import Path

import pytest

from tools import public, yardsticks

SHORT, LONG = "x = 1\n", "x = 1\n" * yardsticks.SHORT
WELL = {
    "src/bide/__init__.py": "from bide.lock import Lock\n\n__all__ = ['Lock']\n",
    "src/bide/lock.py": LONG
    + "WAIT = 5\n\n\nclass Lock:\n    '''Only one may have it.'''\n\n    name: str = 'a'\n    holder: str = 'b'\n\n"
    "    def take(self, wait: float = 1.0) -> bool:\n        '''Whether you have it now.'''\n\n"
    "    async def leave(self, wait: float = WAIT) -> None: ...\n    async def __aenter__(self) -> None: ...\n",
    "src/bide/waits/aio.py": LONG + "class AsyncWait: ...\n",
    "src/bide/waits/sync/__init__.py": "# Generated from ../aio.py by tools/unasync.py\nclass Wait: ...\n",
    "src/bide/engines/__init__.py": "",
    "src/bide/engines/base.py": LONG,
    "src/bide/engines/aio.py": LONG,
    "src/bide/engines/sync.py": LONG,
    "docs/reference/locks.md": "# Locks\n\n::: bide.Lock\n",
    "docs/contributing/glossary.md": "# Glossary\n\n| word | meaning |\n|---|---|\n| lock | what one has |\n",
}


def house(root: Path, **changes: str) -> Path:
    for name, text in (WELL | changes).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


@pytest.mark.parametrize(
    ("changes", "worse"),
    [
        ({}, []),
        ({"src/bide/short.py": SHORT}, ["modules under 100 lines, per thousand: 167, which is 167 more than the 0 of"]),
        ({"src/bide/other.py": LONG + "class Lock: ...\n"}, ["class names that several modules have: 1, which is 1 more than"]),
        (
            {f"src/bide/engines/{name}/gates.py": LONG + "class Gate: ...\n" for name in ("redis", "sqlite")},  # the same job
            [],
        ),
        (
            {f"src/bide/engines/redis/{name}.py": LONG + "class Gate: ...\n" for name in ("gates", "locks")},
            ["class names that several modules have: 1, which is 1 more than"],
        ),
        ({"src/bide/waiting.py": LONG}, ["modules in -ing: 1, which is 1 more than the 0 of"]),
        (
            {"docs/contributing/glossary.md": "# Glossary\n\n| word | b |\n|---|---|\n| a | b |\n| c | d |\n"},
            ["words of the glossary: 2, which"],
        ),
        ({"src/bide/waits/sync/__init__.py": "# Generated from ../aio.py by tools/unasync.py\nclass Lock: ...\n"}, []),
    ],
)
def test_a_yardstick_that_is_worse_is_named(changes: dict[str, str], worse: list[str], tmp_path: Path) -> None:
    recorded = yardsticks.of_words(house(tmp_path))
    told = list(yardsticks.worse(yardsticks.of_words(house(tmp_path, **changes)), recorded))
    assert len(told) == len(worse)
    for sentence, beginning in zip(told, worse, strict=True):
        assert sentence.startswith(beginning)


def test_a_record_is_written_lower_and_never_higher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(yardsticks, "of_trips", lambda: {"files: send": 3})
    monkeypatch.setattr("shutil.which", lambda _: "redis-server")
    (tmp_path / "tools").mkdir()
    assert yardsticks.main(["--record"], house(tmp_path)) == 0
    assert json.loads((tmp_path / yardsticks.RECORD).read_text())["files: send"] == 3
    monkeypatch.setattr(yardsticks, "of_trips", lambda: {"files: send": 5})
    assert yardsticks.main([], tmp_path) == 1
    assert yardsticks.main(["--record"], tmp_path) == 1
    assert capsys.readouterr().err.count("files: send: 5, which is 2 more than the 3 of tools/yardsticks.json.") == 2
    monkeypatch.setattr(yardsticks, "of_trips", lambda: {"files: send": 2})
    assert yardsticks.main(["--record"], tmp_path) == 0
    assert json.loads((tmp_path / yardsticks.RECORD).read_text())["files: send"] == 2


def test_without_redis_the_frames_are_left_out_but_not_in_ci(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tools").mkdir()
    monkeypatch.setattr("shutil.which", lambda _: None)
    monkeypatch.delenv("CI", raising=False)
    assert yardsticks.main(["--record"], house(tmp_path)) == 0
    assert "frames and files of a message were not counted" in capsys.readouterr().out
    monkeypatch.setenv("CI", "1")
    assert yardsticks.main([], tmp_path) == 1
    assert "make servers" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("before", "after", "shown"),
    [
        ("wait: float = 1.0", "wait: float = 2.0", "+    take(wait: float = 2.0) -> bool"),
        ("def take", "def grab", "+    grab(wait: float = 1.0) -> bool"),
        ("Whether you have it now", "True if you have it", "+        | True if you have it."),
        ("class Lock:", "class Lock(dict):", "+class bide.Lock(dict)"),
        ("class Lock:", "class Lock(dict, frozen=True):", "+class bide.Lock(dict, frozen=True)"),
        ("async def leave", "def leave", "+    leave(wait: float = WAIT) -> None"),
        ("WAIT = 5", "WAIT = 6", "+        WAIT = 6"),
        ("__aenter__", "__aexit__", "-    async __aenter__() -> None"),
        (
            "name: str = 'a'\n    holder: str = 'b'",
            "holder: str = 'b'\n    name: str = 'a'",
            "+    holder: str\n     name: str\n-    holder: str",
        ),
    ],
)
def test_a_change_of_the_public_api_is_shown(
    before: str, after: str, shown: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "tools").mkdir()
    assert public.main([], house(tmp_path)) == 0
    assert public.main(["--check"], tmp_path) == 0
    capsys.readouterr()
    house(tmp_path, **{"src/bide/lock.py": WELL["src/bide/lock.py"].replace(before, after)})
    assert public.main(["--check"], tmp_path) == 1
    told = capsys.readouterr().err
    assert shown in told
    assert told.endswith("If that is meant: python -m tools.public\n")
