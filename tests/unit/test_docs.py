"""The docs are true: their code runs, and their links lead somewhere. `make check` sees whether what is generated is fresh."""

import ast
import asyncio
import inspect
import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")])
BLOCK = re.compile(
    r"^(?P<skip><!-- (not run|run with (PostgreSQL|RabbitMQ)) -->\n+)?```python\n(?P<code>.*?)^```$", re.DOTALL | re.MULTILINE
)
LINK = re.compile(r"\[[^\]]+\]\(([^)\s]+)\)")
ONE_OF_THE_CONTRACT = "test_a_message_is_never_handed_out_early"


class Block(NamedTuple):
    page: Path
    line: int
    code: str
    run: bool


def blocks() -> Iterator[Block]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for found in BLOCK.finditer(text):
            line = text.count("\n", 0, found.start("code")) + 1
            yield Block(page, line, found["code"], not found["skip"])


def named(block: Block) -> str:
    return f"{block.page.relative_to(ROOT)}:{block.line}"


BLOCKS = list(blocks())
TESTS = [block for block in BLOCKS if block.run and re.search(r"^(async )?(def test_|class Test)", block.code, re.MULTILINE)]
SCRIPTS = [block for block in BLOCKS if block.run and block not in TESTS]


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """A page may show how to turn logs up."""
    loggers = [logging.getLogger(name) for name in ("", "bide", "bide.engine")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.mark.usefixtures("logging_as_it_was")
@pytest.mark.parametrize("block", SCRIPTS, ids=named)
def test_a_script_in_the_docs_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BIDE_URL", raising=False)
    shifted = "\n" * (block.line - 1) + block.code  # so that a traceback names the line of the page
    namespace: dict[str, Any] = {"__name__": "docs"}
    exec(compile(shifted, str(block.page), "exec"), namespace)
    main = namespace.get("main")
    if inspect.iscoroutinefunction(main) and "asyncio.run(" not in block.code:
        asyncio.run(main())
    assert {name.partition("-")[0] for name in os.listdir(tmp_path)} <= {"shop.db"}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    """Of each file of tests from the docs, what does not pass, or "" for each test that does. One pytest runs all."""
    folder = tmp_path_factory.mktemp("docs")
    for number, block in enumerate(TESTS):
        (folder / f"{file_of(number, block)}.py").write_text(block.code, encoding="utf-8")
    options = ["-o", "asyncio_mode=auto", "-p", "no:cacheprovider", "--junitxml=told.xml"]
    command = [sys.executable, "-m", "pytest", *options, "-k", f"test_block or {ONE_OF_THE_CONTRACT}"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert (folder / "told.xml").exists(), ended.stdout + ended.stderr
    found: dict[str, list[str]] = {}
    for case in ElementTree.parse(folder / "told.xml").iter("testcase"):
        told = [ElementTree.tostring(each, encoding="unicode") for each in case if each.tag in ("failure", "error", "skipped")]
        found.setdefault(case.attrib["classname"].partition(".")[0], []).append("".join(told))
    return found


def file_of(number: int, block: Block) -> str:
    return f"test_{'contract' if 'EngineContract' in block.code else 'block'}_{number}"


@pytest.mark.parametrize(("number", "block"), list(enumerate(TESTS)), ids=[named(block) for block in TESTS])
def test_a_test_in_the_docs_passes(number: int, block: Block, outcomes: dict[str, list[str]]) -> None:
    count = 2 if "EngineContract" in block.code else len(re.findall(r"^(?:async )?def test_", block.code, re.MULTILINE))
    assert outcomes.get(file_of(number, block)) == [""] * count


@pytest.mark.parametrize("page", ["README.md", "README.zh.md"])
def test_the_first_task_of_the_readme_runs_by_its_commands(page: str, tmp_path: Path) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    [module] = re.findall(r"^```python\n(# shop\.py\n.*?)^```$", text, re.DOTALL | re.MULTILINE)
    (tmp_path / "shop.py").write_text(module, encoding="utf-8")
    [work] = re.findall(r"^bide (worker shop:queue)$", text, re.MULTILINE)
    [send] = re.findall(r"^bide (send .*--delay 5s.*)$", text, re.MULTILINE)
    bide = [sys.executable, "-u", "-m", "bide"]
    worker = subprocess.Popen(
        [*bide, *work.split()], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, encoding="utf-8"
    )
    try:
        subprocess.run([*bide, *shlex.split(send.replace("5s", "10ms"))], cwd=tmp_path, check=True, capture_output=True)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "order 42 was not paid and is cancelled\n"
    finally:
        worker.terminate()
        worker.communicate()
    assert worker.returncode == 0


def test_most_of_the_code_in_the_docs_is_run() -> None:
    assert [block for block in BLOCKS if block.page.name == "README.md" and not block.run] == []
    assert len([block for block in BLOCKS if block.run]) >= 20
    assert sum(page.read_text(encoding="utf-8").count("<!-- not run -->\n\n```python") for page in PAGES) <= 3


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"https?://|mailto:", target):
            continue
        path, _, anchor = target.partition("#")
        goal = page.parent / path if path else page
        assert goal.exists(), f"{page.name} links to {target}, which is not there"
        assert not anchor or anchor in anchors(goal), f"{page.name} links to {target}, which has no such heading"


def test_no_text_of_the_program_names_a_page_of_the_docs() -> None:
    """Which are not installed with it."""
    sources = {path: path.read_text(encoding="utf-8") for path in (ROOT / "src/bide").rglob("*.py")}
    for path, source in sources.items():
        if "docs/" not in source:
            continue
        tree = ast.parse(source)
        own = {id(each.value) for each in ast.walk(tree) if isinstance(each, ast.Expr)}  # of the code: docstrings
        texts = [each.value for each in ast.walk(tree) if isinstance(each, ast.Constant) and id(each) not in own]
        named = [text for text in texts if isinstance(text, str) and re.search(r"docs/\S+\.md", text)]
        assert not named, path


def test_no_page_has_the_marks_of_a_merge() -> None:
    marked = [page.name for page in PAGES if re.search(r"^(<{7}|>{7})", page.read_text(encoding="utf-8"), re.MULTILINE)]
    assert marked == []


def test_the_page_on_logs_names_every_logger() -> None:
    page = (ROOT / "docs" / "hooks.md").read_text(encoding="utf-8")
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "src" / "bide").rglob("*.py"))
    used = set(re.findall(r'Log\("(bide\.\w+)"\)', code))
    assert used
    assert set(re.findall(r"^\| `(bide\.\w+)`", page, re.MULTILINE)) == used


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.fixture
def copied_tool(tmp_path: Path) -> Path:
    """The tool in a place of its own, with a page whose generated part is empty."""
    (tmp_path / "tools").mkdir()
    copy = tmp_path / "tools" / "docs.py"
    copy.write_bytes((ROOT / "tools" / "docs.py").read_bytes())
    (tmp_path / "README.md").write_text("before\n<!-- generated: engines -->\n<!-- end -->\nafter\n", encoding="utf-8")
    return copy


def test_a_stale_part_is_named_then_written_then_fresh(copied_tool: Path) -> None:
    def ran(*arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run([sys.executable, str(copied_tool), *arguments], capture_output=True, text=True, check=False)

    page = copied_tool.parents[1] / "README.md"
    stale = ran("--check")
    assert (stale.returncode, stale.stderr) == (1, "Stale: README.md. Run python tools/docs.py and commit what it writes.\n")
    assert "memory" not in page.read_text(encoding="utf-8")

    assert ran().returncode == 0
    assert ran("--check").returncode == 0
    text = page.read_text(encoding="utf-8")
    assert "| `memory://` |" in text
    assert text.startswith("before\n")
    assert text.endswith("after\n")


def test_a_part_that_nobody_makes_is_refused(copied_tool: Path) -> None:
    (copied_tool.parents[1] / "README.md").write_text("<!-- generated: nonsense -->\n<!-- end -->\n", encoding="utf-8")
    ended = subprocess.run([sys.executable, str(copied_tool)], capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "no part called 'nonsense'" in ended.stderr
