"""`bide doctor`: what an operator should know of the place where messages live."""

import json
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from bide import Queue
from bide.engines.base import Finding

STYLES = {"ok": "", "warn": "yellow", "bad": "bold red"}


def run(url: str | None, namespace: str, *, as_json: bool = False) -> int:
    """Look, and say it; 1 when something is bad."""
    findings = Queue(url, namespace=namespace).examine()
    if as_json:
        print(
            json.dumps(
                [{"name": each.name, "value": each.value, "level": each.level, "advice": each.advice} for each in findings],
                indent=2,
            )
        )
    else:
        _show(findings)
    return 1 if any(each.level == "bad" for each in findings) else 0


def _show(findings: Sequence[Finding]) -> None:
    table = Table(box=None, show_header=False, pad_edge=False)
    for each in findings:
        mark = "" if each.level == "ok" else f"{each.level}: {each.advice}"
        table.add_row(each.name, each.value, mark, style=STYLES[each.level])
    Console(soft_wrap=False).print(table)
