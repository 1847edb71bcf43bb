"""Writes the parts of the docs that are made from the code: the engines, the options of a send, the life of a message, the
errors, the recipes, the ways to delay a message, the programs of the mistakes, the table of what makes a message late.

They stand between `<!-- generated: name -->` and `<!-- end -->`. With --check nothing is written: a part that is
stale is named, and the exit code is 1.
"""

import ast
import importlib
import json
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import bide.engines
from bide.core import lifecycle, send_options
from bide.engines.base import Capabilities
from bide.errors import BideError
from bide.queue.aio.planner import NEEDED

ROOT = Path(__file__).resolve().parents[1]
PART = re.compile(r"(<!-- generated: ([a-z]+)(?: ([a-z_]+))? -->\n).*?(<!-- end -->)", re.DOTALL)
EXAMPLES = {"recipe": "recipes", "mistake": "mistakes"}
"""Folders of examples, by the part that shows one of their files."""
ROADS = ROOT / "examples" / "roads"

WORDS = {
    "accepted": "accepted means",
    "cancel": "cancel and reschedule",
    "lookup": "`get`",
    "keys": "keys, `if_exists`, `unique_for`",
    "idempotent": "`operation` acts once",
    "fencing": "old tokens are refused",
    "extend": "leases can be extended",
    "attempts": "attempts are counted and limited",
    "traces": "records of failed attempts are kept",
    "inspect": "`messages`, `stats`, `timeline`, `purge`",
    "dead": "dead letters: `messages`, `requeue`, `purge`",
    "pause": "pause and resume",
    "priority": "priority",
    "gates": "locks and limits",
    "results": "kept results and `depends_on`",
    "past": "keeps attempts and dead letters of messages that move in",
    "schedules": "schedules",
    "ordered": "exact order of due times",
    "instants": "no `at=` before the server's clock has reached it, also after it was set back",
    "transactional": "joins your transaction",
    "wake": "a send wakes an idle receiver",
    "persistent": "outlives the process",
    "tick": "due times are rounded up to",
    "max_delay": "longest delay",
    "max_body": "largest body that the engine takes",
    "max_topics": "topics that one receiver or worker may serve",
    "together": "messages that one cancel ends together, all or none; over several shards 1",
    "colours": "available as",
}
"""What each capability is called in the docs, in the order of the table. Schedules are none: they need several."""


SCHEMES = {"rabbitmq": "amqp"}
"""Of engines whose URLs don't begin with the name of their package."""


def engines() -> dict[str, Capabilities]:
    """The engines of this release, by the scheme of their URLs."""
    packages = [each.name for each in pkgutil.iter_modules(bide.engines.__path__) if each.ispkg]
    modules = {name: importlib.import_module(f"bide.engines.{name}") for name in packages}
    return {SCHEMES.get(name, name): module.CAPABILITIES for name, module in modules.items() if hasattr(module, "CAPABILITIES")}


def engine_table() -> str:
    """An engine a line: what to choose by."""
    rows = [["engine", WORDS["accepted"], WORDS["persistent"], WORDS["transactional"], "can't do"]]
    for name, can in engines().items():
        lacking = [WORDS[word] for word in WORDS if _value(word, can) is False and word not in ("persistent", "transactional")]
        choices = [_shown("persistent", can), _shown("transactional", can)]
        rows.append([f"`{name}://`", can.accepted, *choices, ", ".join(lacking) or "–"])
    return _table(rows)


def capability_table() -> str:
    """A capability a line: all there is to know."""
    all_engines = engines()
    rows = [["capability", *(f"`{name}://`" for name in all_engines)]]
    assert {*WORDS} == {*Capabilities.__struct_fields__, "schedules"}
    rows += [[WORDS[word], *(_shown(word, can) for can in all_engines.values())] for word in WORDS]
    return _table(rows)


def options_table() -> str:
    """An option of a send a line, and where it may be given beside `send`."""
    rows = [["option of `send`", "what it does", "`later`", "`send_many`", "`bide send`", "[other languages](languages.md)"]]
    for each in send_options.ALL:
        says = re.sub(r"--([a-z-]+)", lambda flag: f"`{flag[1].replace('-', '_')}`", each.help)
        many = "each its own" if each.each else "one for all" if each.many else "–"
        rows.append([f"`{each.name}`", says, _mark(each.later), many, _mark(each.flag is not None), _mark(each.foreign)])
    return _table(rows)


def _mark(given: bool) -> str:
    return "yes" if given else "–"


def life() -> str:
    return f"```mermaid\n{lifecycle.diagram()}\n```\n"


def error_tree() -> str:
    return "\n".join(["```text", *_branch(BideError, "", ""), "```", ""])


def measured_roads(which: str) -> str:
    """A table of the ways to delay a message, from the figures that were kept."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    text: str = getattr(importlib.import_module("benchmarks.roads.table"), which)()
    return text


LATENESS = "lateness_at_worst"
"""The benchmark whose kept figures are in the table of docs/lateness.md."""

CAUSES = {
    "normal": "nothing: a worker has a free slot",
    "all busy": "all slots are busy: after one is free",
    "worker killed": "the worker that had it is killed: after its death",
    "supervised process killed": "the same, under `bide worker --processes 2`",
    "wake-up lost": "the wake-up is lost",
    "server frozen": "the server stands still for 10 s: after it goes on",
    "failover": "the server dies: from its death on",
}


def lateness() -> str:
    """A cause a line, an engine a column: the bound, and the worst of what was measured."""
    kept = json.loads((ROOT / "benchmarks" / f"{LATENESS}.json").read_text(encoding="utf-8"))
    figures = {each["name"]: each for each in kept["figures"][LATENESS]}
    names = list(dict.fromkeys(name.partition(", ")[2] for name in figures if ", " in name))
    rows = [["cause", *names]]
    rows += [[says, *(_latest(figures, cause, name) for name in names)] for cause, says in CAUSES.items()]
    return _table(rows)


def _latest(figures: dict[str, dict[str, Any]], cause: str, engine: str) -> str:
    found = figures.get(f"{cause}, {engine}")
    if found is None:
        return "–"
    bound, away = float(found["bar"].removeprefix("<= ")), figures.get(f"without a server, {engine}")
    after = f" ({_time(away['high'])} without a server)" if cause == "failover" and away else ""
    return f"≤ {_time(bound)}: {_time(found['high'])}{after}"


def _time(ms: float) -> str:
    return f"{max(1, round(ms))} ms" if ms < 1_000 else f"{ms / 1_000:.3g} s"


PARTS: dict[str, Callable[[], str]] = {
    "lateness": lateness,
    "engines": engine_table,
    "capabilities": capability_table,
    "life": life,
    "options": options_table,
    "errors": error_tree,
    "roads": partial(measured_roads, "head"),
    "rounds": partial(measured_roads, "rounds"),
}


def example(kind: str, name: str) -> str:
    """A file of examples. Its first line is the text of the page. It has its own tests, so those of the docs don't run it."""
    path = f"examples/{EXAMPLES[kind]}/{name}.py"
    code = (ROOT / path).read_text(encoding="utf-8")
    says, code = re.fullmatch(r'"""(.*?)"""\n\n(.*)', code, re.DOTALL).groups()  # type: ignore[union-attr]
    return f"{says}\n\n```py\n# {path}\n{code}```\n"


def road(name: str) -> str:
    """One way to delay a message: the file without its docstring and its imports. Its tests are in tests/roads."""
    path = ROADS / f"{name}.py"
    text = path.read_text(encoding="utf-8")
    first = next(each for each in ast.parse(text).body[1:] if not isinstance(each, ast.Import | ast.ImportFrom))
    begin = min([first.lineno, *(each.lineno for each in getattr(first, "decorator_list", []))])
    code = "".join(text.splitlines(keepends=True)[begin - 1 :])
    return f"```py\n# examples/roads/{name}.py\n{code}```\n"


FILES: dict[str, Callable[[str], str]] = {**{kind: partial(example, kind) for kind in EXAMPLES}, "road": road}
"""Parts that name a file."""


def _value(word: str, can: Capabilities) -> Any:
    return all(getattr(can, each) for each in NEEDED) if word == "schedules" else getattr(can, word)


def _shown(word: str, can: Capabilities) -> str:
    value = _value(word, can)
    if isinstance(value, bool):
        return "yes" if value else "no"
    if word == "tick":
        return f"{value} ms"
    if word == "max_delay":
        return f"{value // 86_400_000:,} days"
    if word == "max_body":
        return f"{value // 2**20:,} MiB"
    if word == "together":
        return f"{value:,}" if can.cancel else "–"
    if word == "max_topics":
        return f"{value:,}" if value < 2**31 else "any number"
    return ", ".join(sorted(value)) if isinstance(value, frozenset) else str(value)


def _table(rows: list[list[str]]) -> str:
    rows = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _branch(error: type[BaseException], first: str, rest: str) -> Iterator[str]:
    """An error and all that derive from it, in the order of their definition."""
    meaning = (error.__doc__ or "").strip().splitlines()[0]
    yield f"{first}{error.__name__} ".ljust(25) + meaning
    children = [child for child in error.__subclasses__() if child.__module__ == BideError.__module__]
    for child in children:
        last = child is children[-1]
        yield from _branch(child, rest + ("└── " if last else "├── "), rest + ("    " if last else "│   "))


def written(text: str) -> str:
    """A document with its generated parts as they should be."""

    def part(found: re.Match[str]) -> str:
        begin, name, which, end = found.groups()
        if which and name in FILES:
            return f"{begin}{FILES[name](which)}{end}"
        if name not in PARTS:
            known = ", ".join([*PARTS, *(f"{each} NAME" for each in FILES)])
            raise SystemExit(f"docs: there is no part called '{name}'; there is: {known}")
        return f"{begin}{PARTS[name]()}{end}"

    return PART.sub(part, text)


def main(arguments: list[str], root: Path = ROOT) -> int:
    stale = []
    for path in sorted([*root.glob("*.md"), *root.glob("docs/**/*.md")]):
        text = path.read_text(encoding="utf-8")
        if (fresh := written(text)) != text:
            stale.append(str(path.relative_to(root)))
            if "--check" not in arguments:
                path.write_text(fresh, encoding="utf-8")
    if stale and "--check" in arguments:
        print(f"Stale: {', '.join(stale)}. Run python tools/docs.py and commit what it writes.", file=sys.stderr)
        return 1
    print(f"docs: {'wrote ' + ', '.join(stale) if stale else 'every generated part is up to date'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
