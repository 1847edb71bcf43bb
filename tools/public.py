"""The public API as one text: the name, signature and docstring of everything that users may rely on.

    python -m tools.public           write it to tools/public.txt
    python -m tools.public --check   write nothing; the exit code is 1 if it has changed

Public is what `bide` exports, what the pages of docs/reference show, and the interface of engines. Whoever changes one of these
on purpose writes the text anew: its diff is what users will meet.
"""

import difflib
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import griffe

ROOT = Path(__file__).resolve().parents[1]
RECORD = Path("tools/public.txt")
ENGINES = ["bide.engines.base", "bide.engines.aio", "bide.engines.sync"]
SHOWN = 40  # lines of a difference
INDENT = "    "


def names(root: Path, package: griffe.Module) -> list[str]:
    """Those of classes, functions and values; and of modules, whose public members are meant."""
    exported = [f"bide.{name}" for name in package.exports or []]
    pages = sorted((root / "docs/reference").glob("*.md"))
    shown = [name for page in pages for name in re.findall(r"^::: (\S+)$", page.read_text(encoding="utf-8"), re.MULTILINE)]
    modules = {name for name in {*shown, *ENGINES} if package[name.removeprefix("bide.")].is_module}
    single = {name for name in {*exported, *shown} if package[name.removeprefix("bide.")].module.path not in modules}
    return sorted(modules | single)


def described(package: griffe.Module, name: str) -> Iterator[str]:
    target = resolved(package[name.removeprefix("bide.")])
    if isinstance(target, griffe.Module):
        yield name
        yield from documented(target, INDENT)
        for each in own(target):
            yield from member(target, each, INDENT)
    else:
        yield from of(name, target, "")


def own(scope: griffe.Module | griffe.Class) -> list[str]:
    """The public names that it defines, or that a class inherits from bide: a class's fields in their order, then the rest."""
    if isinstance(scope, griffe.Module):
        return sorted(name for name, each in scope.members.items() if not each.is_alias and not name.startswith("_"))
    members = scope.all_members.items()
    kept = {name: resolved(each) for name, each in members if not name.startswith("_") or _is_asked(name, each)}
    fields = [name for name, each in kept.items() if isinstance(each, griffe.Attribute) and "property" not in each.labels]
    return fields + sorted(kept.keys() - set(fields))


def _is_asked(name: str, member: griffe.Object | griffe.Alias) -> bool:
    """Whether it says what Python's own syntax does with an object, as `async with` or a call."""
    return name.startswith("__") and name != "__init__" and isinstance(resolved(member), griffe.Function)


def member(scope: griffe.Module | griffe.Class, name: str, indent: str) -> Iterator[str]:
    each = scope[name] if name in scope.members else scope.all_members[name]
    yield from of(name, resolved(each), indent)


def resolved(what: griffe.Object | griffe.Alias) -> griffe.Object:
    return what.final_target if isinstance(what, griffe.Alias) else what


def of(name: str, what: griffe.Object, indent: str) -> Iterator[str]:
    if isinstance(what, griffe.Class):
        bases = ", ".join([*map(str, what.bases), *(f"{name}={value}" for name, value in what.keywords.items())])
        made = what.all_members.get("__init__")
        yield f"{indent}class {name}({bases})" if bases else f"{indent}class {name}"
        yield from documented(what, indent + INDENT)
        if made is not None:
            yield from member(what, "__init__", indent + INDENT)
        for each in own(what):
            yield from member(what, each, indent + INDENT)
    elif isinstance(what, griffe.Function):
        marks = "".join(f"@{each.value} " for each in what.decorators)
        for one in what.overloads or [what]:
            marked = f"{marks}async " if "async" in one.labels else marks
            yield f"{indent}{marked}{one.signature(name=name)}"
        for constant, value in constants(what).items():
            yield f"{indent + INDENT}{constant} = {value}"
        yield from documented(what, indent + INDENT)
    elif isinstance(what, griffe.Attribute):
        noted = f": {what.annotation}" if what.annotation is not None else ""
        value = f" = {what.value}" if what.value is not None and "instance-attribute" not in what.labels else ""
        yield f"{indent}{name}{noted}{value}"
        yield from documented(what, indent + INDENT)


def constants(function: griffe.Function) -> dict[str, str]:
    """The values of defaults that are named."""
    found: dict[str, str] = {}
    for each in function.parameters:
        if isinstance(each.default, griffe.ExprName) and each.default.canonical_path.startswith("bide."):
            value = resolved(function.package[each.default.canonical_path.removeprefix("bide.")])
            if isinstance(value, griffe.Attribute):
                found[str(each.default)] = str(value.value)
    return found


def documented(what: griffe.Object, indent: str) -> Iterator[str]:
    for line in what.docstring.value.splitlines() if what.docstring else ():
        yield f"{indent}| {line}".rstrip()


def text(root: Path) -> str:
    package = griffe.load("bide", search_paths=[root / "src"])
    assert isinstance(package, griffe.Module)
    return "\n\n".join("\n".join(described(package, name)) for name in names(root, package)) + "\n"


def main(arguments: list[str], root: Path = ROOT) -> int:
    if arguments not in ([], ["--check"]):
        print(__doc__, file=sys.stderr)
        return 2
    record, now = root / RECORD, text(root)
    if not arguments:
        record.write_text(now, encoding="utf-8")
        print(f"public: wrote {RECORD}")
        return 0
    before = record.read_text(encoding="utf-8") if record.exists() else ""
    changed = list(difflib.unified_diff(before.splitlines(), now.splitlines(), "public before", "public now", lineterm="", n=1))
    if changed:
        print(*changed[:SHOWN], *(["…"] if len(changed) > SHOWN else []), sep="\n", file=sys.stderr)
        print("The public API has changed. If that is meant: python -m tools.public", file=sys.stderr)
        return 1
    print(f"public: {len(now.splitlines()):,} lines, as they were")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
