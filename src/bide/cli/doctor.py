"""`bide doctor`: what an operator should know of the place where messages live."""

import json
import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest

from bide.cli.exits import Exit
from bide.cli.output.columns import GAP, LEAST, Columns
from bide.cli.output.out import is_terminal, say, tell
from bide.cli.place import Place
from bide.engines import registry
from bide.engines.base import Finding
from bide.errors import ConfigError

STYLES = {"ok": "", "warn": "yellow", "bad": "bold red"}


def run(place: Place, *, fix: bool = False, as_json: bool = False) -> int:
    """Look, and say it; FAILED when something is bad. With `fix`, set right first what can be."""
    queue = place.any_queue()
    source = queue.session.setup.source
    mended = _mended(source) if fix else []
    findings = [*mended, *queue.examine()]
    if as_json:
        listed = [{"name": each.name, "value": each.value, "level": each.level, "advice": each.advice} for each in findings]
        for line in json.dumps(listed, indent=2).split("\n"):
            say(line)
    else:
        _show(findings)
    return Exit.FAILED if any(each.level == "bad" for each in findings) else Exit.OK


def _mended(source: registry.Source) -> Sequence[Finding]:
    """What was set right; it says so, too, when that was nothing."""
    mended = source.mend()
    if mended is None:
        return [Finding("mended", "nothing: --fix has nothing that it could set right here")]
    return mended or [Finding("mended", "nothing: what --fix can set right is right")]


def show_rights(place: Place) -> int:
    """Print ACL lines that create a server's least-privilege users. No server is asked."""
    settings = place.any_queue().session.setup.settings  # what is wrong with the URL, or not installed, is told as ever
    if registry.scheme_of(settings.url) not in ("redis", "rediss", "unix"):
        raise ConfigError("Only Redis has rights to grant: name a redis:// URL, by --url, --url-file or $BIDE_URL.")
    from bide.engines.redis.doctor import rights
    from bide.engines.redis.url import read

    address = read(settings)
    database = address.db
    for role in rights.ROLES:
        say(rights.line(role, address.namespace, wake=address.wake, database=database))
    tell(rights.REMARK)
    return Exit.OK


def _show(findings: Sequence[Finding]) -> None:
    marks = ["" if each.level == "ok" else f"  {each.level}: {each.advice}" for each in findings]
    widest = max((len(each.name) for each in findings), default=0)
    columns = Columns("", "", whole=True)
    for each, mark in zip(findings, marks, strict=True):
        lines = _wrapped(each.value + mark, widest)
        columns.add(
            [(f"{name:<{widest}}", line) for name, line in zip_longest([each.name], lines, fillvalue="")],
            [STYLES[each.level]] * len(lines),
        )


def _wrapped(text: str, beside: int) -> list[str]:
    """Lines that break between words on a terminal, beside a column of such a width."""
    if not is_terminal(sys.stdout):
        return [text]
    room = shutil.get_terminal_size().columns - beside - len(GAP)
    return textwrap.wrap(text, max(room, LEAST), break_long_words=False, break_on_hyphens=False) or [""]
