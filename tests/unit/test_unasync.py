"""The generator of sync twins: what it makes of async code, and what it refuses."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "unasync.py"

FEW_RULES = (
    (r"\basync (def|with|for)\b", r"\1"),
    (r"\bawait ", ""),
    (r"\bAsync([A-Z]\w*)", r"\1"),
)

SOURCE = '''# unasync: sync/twin.py
"""Moves the bytes."""

from collections.abc import AsyncIterator


class AsyncStore:
    async def numbers(self) -> AsyncIterator[int]:
        async with self.lock:
            async for number in self.rows():
                yield await number.value()
'''

TWIN = '''# Generated from ../aio.py by tools/unasync.py; change that file instead.
"""Moves the bytes."""

from collections.abc import Iterator


class Store:
    def numbers(self) -> Iterator[int]:
        with self.lock:
            for number in self.rows():
                yield number.value()
'''


@pytest.fixture
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("unasync_under_test", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A folder of an engine whose aio.py is the source above, in a project of its own."""
    folder = tmp_path / "src" / "bide" / "engines" / "example"
    (folder / "sync").mkdir(parents=True)
    (folder / "aio.py").write_text(SOURCE)
    return folder


@pytest.fixture
def run(tool: ModuleType, tmp_path: Path, engine: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Runs the tool on that project, with few rules, so that each of them is used."""
    monkeypatch.setattr(tool, "RULES", FEW_RULES)

    def run(*arguments: str) -> int:
        return int(tool.main(arguments, root=tmp_path))

    return run


# At least one for each rule: a rule that goes takes its examples along.
EXAMPLES = [
    ("async def f(): ...", "def f(): ..."),
    ("rows = [await row async for row in self.rows()]", "rows = [row for row in self.rows()]"),
    ("first = {k: await v async for k, v in f() if await k}", "first = {k: v for k, v in f() if k}"),
    ("(await self.get(key)).value", "self.get(key).value"),
    ("(await self.get(key))[0] + (await other)", "self.get(key)[0] + other"),
    ("print(await self.get(key))", "print(self.get(key))"),
    ("(await one or other).value", "(one or other).value"),
    ("(await make(key)(other)).value", "(make(key)(other)).value"),
    ("f: AsyncGenerator[dict[str, int], None]", "f: Generator[dict[str, int], None, None]"),
    ("hook: Callable[[int], Awaitable[None]]", "hook: Callable[[int], None]"),
    ("async def __aenter__(self) -> AsyncQueue: ...", "def __enter__(self) -> Queue: ..."),
    ("lock = asyncio.Lock()", "lock = threading.Lock()"),
    ("import asyncio", "import threading"),
    ("from bide.engines.aio import AsyncEngine", "from bide.engines.sync import Engine"),
    ("from bide.engines import aio as seam", "from bide.engines import sync as seam"),
    ("an awaitable of asyncs, aio_pika, awaits, unawait it", "an awaitable of asyncs, aio_pika, awaits, unawait it"),
]


@pytest.mark.parametrize(("source", "twin"), EXAMPLES)
def test_async_words_become_sync_ones_and_nothing_else_changes(tool: ModuleType, source: str, twin: str) -> None:
    assert tool.translate(source, set()) == twin


def test_every_rule_has_an_example(tool: ModuleType) -> None:
    used: set[str] = set()
    for source, _ in EXAMPLES:
        tool.translate(source, used)
    assert used == {pattern for pattern, _ in tool.RULES}


def test_a_docstring_shows_the_sync_way(tool: ModuleType) -> None:
    source = '"""Use it.\n\n    async with AsyncQueue() as queue:\n        await queue.send("topic")\n"""'
    assert tool.translate(source, set()) == '"""Use it.\n\n    with Queue() as queue:\n        queue.send("topic")\n"""'


def test_a_twin_is_written_beside_its_source_and_then_matches(run: Callable[..., int], engine: Path) -> None:
    assert run() == 0
    assert (engine / "sync" / "twin.py").read_text() == TWIN
    assert run("--check") == 0


def test_a_twin_may_live_in_another_folder(run: Callable[..., int], engine: Path) -> None:
    (engine / "aio.py").write_text(SOURCE.replace("sync/", "../sync/"))
    assert run() == 0
    assert (engine.parent / "sync" / "twin.py").read_text() == TWIN.replace("from ../aio.py", "from ../example/aio.py")


def test_a_twin_stands_in_a_folder_that_searches_leave_out(
    run: Callable[..., int], engine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (engine / "aio.py").write_text(SOURCE.replace("sync/twin.py", "sync.py"))
    assert run() == 1
    assert "sync.py is not in a folder named sync" in capsys.readouterr().err


def test_imports_are_sorted_again_and_unused_ones_dropped(
    run: Callable[..., int], engine: Path, tool: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    imports = (r"\bimport asyncio\b", "import time\nimport contextlib\nimport threading")
    monkeypatch.setattr(tool, "RULES", (*FEW_RULES, imports))
    source = SOURCE.replace("from coll", "import asyncio\nfrom coll") + "\n\nlock, begin = threading.Lock(), time.time()\n"
    (engine / "aio.py").write_text(source)
    assert run() == 0
    assert (
        '"""\n\nimport threading\nimport time\nfrom collections.abc import Iterator\n'
        in (engine / "sync" / "twin.py").read_text()
    )


def test_check_names_a_missing_twin_and_the_command(
    run: Callable[..., int], engine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("--check") == 1
    assert "engines/example/sync/twin.py is missing: run `python tools/unasync.py`" in capsys.readouterr().err
    assert not (engine / "sync" / "twin.py").exists()


def test_check_names_a_stale_twin_and_leaves_it_alone(
    run: Callable[..., int], engine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = TWIN + "\n# a change in the wrong file\n"
    (engine / "sync" / "twin.py").write_text(stale)
    assert run("--check") == 1
    assert "sync/twin.py does not match its source: run `python tools/unasync.py`" in capsys.readouterr().err
    assert (engine / "sync" / "twin.py").read_text() == stale


@pytest.mark.parametrize("arguments", [(), ("--check",)])
def test_a_generated_file_without_a_source_is_refused(
    run: Callable[..., int], engine: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    (engine / "sync" / "twin.py").write_text(TWIN)
    (engine / "orphan.py").write_text(TWIN)
    assert run(*arguments) == 1
    assert "orphan.py says it is generated, but no source names it" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [(), ("--check",)])
def test_code_that_is_written_by_hand_where_nobody_sees_it_is_refused(
    run: Callable[..., int], engine: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    (engine / "sync" / "twin.py").write_text(TWIN)
    (engine / "sync" / "__init__.py").write_text('"""Says only what is here."""\n')
    assert run(*arguments) == 0
    (engine / "sync" / "mine.py").write_text("mine = 1\nyours = 2\n")
    assert run(*arguments) == 1
    assert "sync/mine.py was written by hand, and nobody sees it in a folder named sync" in capsys.readouterr().err


def test_a_file_written_by_hand_is_not_overwritten(
    run: Callable[..., int], engine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (engine / "sync" / "twin.py").write_text("mine = 1\n")
    assert run() == 1
    assert "written by hand" in capsys.readouterr().err
    assert (engine / "sync" / "twin.py").read_text() == "mine = 1\n"


def test_two_sources_can_not_share_a_target(run: Callable[..., int], engine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (engine / "other.py").write_text(SOURCE)
    assert run() == 1
    assert "already the target of another source" in capsys.readouterr().err


def test_a_rule_that_changes_nothing_is_refused(
    run: Callable[..., int], engine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (engine / "aio.py").write_text("# unasync: sync/twin.py\n\n\nasync def f() -> None:\n    await g()\n")
    assert run() == 1
    assert capsys.readouterr().err.endswith("so remove them:\n  \\bAsync([A-Z]\\w*)\n")


@pytest.mark.parametrize("line", ["await\\\n    f()", "asyncio.run(f())", "def __aenter__(self): ..."])
def test_async_code_that_no_rule_has_met_is_refused(
    run: Callable[..., int], engine: Path, capsys: pytest.CaptureFixture[str], line: str
) -> None:
    (engine / "aio.py").write_text(f"{SOURCE}\n\n{line}\n")
    assert run() == 1
    assert "no rule takes the async out of" in capsys.readouterr().err
    assert not (engine / "sync" / "twin.py").exists()


def test_a_twin_that_is_not_python_is_refused(
    run: Callable[..., int], engine: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (engine / "aio.py").write_text(SOURCE + "\nif:\n")
    assert run() == 1
    assert "not valid Python" in capsys.readouterr().err


def test_an_unknown_argument_is_refused(run: Callable[..., int], engine: Path) -> None:
    assert run("--chekc") == 2
    assert not (engine / "sync" / "twin.py").exists()
