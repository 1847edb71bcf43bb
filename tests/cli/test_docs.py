"""docs/cli.md is true: its blocks are run in order, and its tables name what there is."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import NamedTuple

from bide import Queue
from bide.cli.exits import Exit
from tests.cli.running import BIDE, Bide, buried, plain_environment

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "cli.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
VARIES = (
    (r"\b[0-9a-f]{16}\b", "ID"),
    (r"\b0\.\d{13}\.\d+", "MARK"),
    (r"\b(?:2026-\d\d-\d\d|2030-01-15) \d\d:\d\d:\d\d[+-]\d\d(?::\d\d)?", "DATE"),
    (r"\bin \d+[dhms](?: \d+[dhms])?|\b\d+[dhms](?: \d+[dhms])? ago|\bnow\b|\b\d+s$", "AWAY"),
    (r" {2,}", "  "),
)


class Step(NamedTuple):
    command: str
    output: str


def steps() -> list[Step]:
    found = []
    for block in BLOCK.findall(PAGE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append(Step(command, output))
    return found


def alike(text: str) -> str:
    """Without what is another each time. A year of today is that of the page."""
    text = re.sub(r"\b20(2[6-9]|3\d)-(?=\d\d-\d\d )", lambda year: year[0] if year[0] == "2030-" else "2026-", text)
    for pattern, word in VARIES:
        text = re.sub(pattern, word, text, flags=re.MULTILINE)
    return text


def test_the_blocks_of_the_page_do_what_they_show(folder: Path) -> None:
    with Queue(f"sqlite:///{folder}/bide.db") as queue:
        buried(queue, "order.pack", 2)
    (folder / "bin").mkdir()
    (folder / "bin" / "bide").write_text(f'#!/bin/sh\nexec {BIDE[0]} -m bide "$@"\n')
    (folder / "bin" / "bide").chmod(0o755)
    environment = plain_environment(PATH=f"{folder}/bin:{os.environ['PATH']}")
    each = steps()
    assert len(each) >= 15
    script = "".join(f"{{ {step.command}\n}} 2>&1; echo '-- end'\n" for step in each)
    ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env=environment)
    for step, output in zip(each, ended.stdout.split("-- end\n"), strict=False):
        assert alike(output) == alike(step.output), step.command


def test_the_page_names_every_exit_code() -> None:
    assert re.findall(r"^\| (\d+) \| ([A-Z]+) \|", PAGE, re.MULTILINE) == [(str(int(each)), each.name) for each in Exit]


def test_the_page_names_every_field_of_json(bide: Bide, queue: Queue) -> None:
    buried(queue, "t")
    queue.send("t", key="k", delay="1h")
    commands = (
        ["send", "t"], ["list", "t"], ["dead", "t"], ["show", "t", "--key", "k"], ["stats"], ["topics"], ["pause", "t"],
        ["resume", "t"], ["reschedule", "t", "--key", "k", "--delay", "2h"], ["cancel", "t", "--key", "k"],
        ["requeue", "t", "--all"], ["purge", "t", "--state", "ready", "--yes"], ["cancel --all", "t", "--yes"],
        ["requeue --dry-run", "t", "--all"], ["timeline", "t"], ["doctor"],
    )  # fmt: skip
    rows = dict(re.findall(r"^\| (`[a-z].*?) \| (`.*) \|$", PAGE.partition("### JSON")[2], re.MULTILINE))
    for name, *arguments in commands:
        [told] = [fields for names, fields in rows.items() if f"`{name}`" in names]
        out = bide(*name.split(), *arguments, "--json").out
        answer = json.loads(out)[0] if name == "doctor" else json.loads(out.splitlines()[0])
        assert list(answer) == re.findall(r"`(\w+)`", re.sub(r"\(.*?\)", "", told)), name
