"""`bide doctor`: what an operator should know of the place where messages live."""

import json
from collections.abc import Sequence

from bide.cli.exits import Exit
from bide.cli.output.columns import Columns
from bide.cli.output.out import say
from bide.cli.place import Place
from bide.engines.base import Finding

STYLES = {"ok": "", "warn": "yellow", "bad": "bold red"}


def run(place: Place, *, as_json: bool = False) -> int:
    """Look, and say it; FAILED when something is bad."""
    findings = place.any_queue().examine()
    if as_json:
        listed = [{"name": each.name, "value": each.value, "level": each.level, "advice": each.advice} for each in findings]
        for line in json.dumps(listed, indent=2).split("\n"):
            say(line)
    else:
        _show(findings)
    return Exit.FAILED if any(each.level == "bad" for each in findings) else Exit.OK


def _show(findings: Sequence[Finding]) -> None:
    marks = ["" if each.level == "ok" else f"  {each.level}: {each.advice}" for each in findings]
    rows = [(each.name, each.value + mark) for each, mark in zip(findings, marks, strict=True)]
    Columns("", "", whole=True).add(rows, [STYLES[each.level] for each in findings])
