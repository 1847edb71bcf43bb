"""The budgets of the project: how long a file or a function may be, and what a module may be called."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE_LINES = 400
FILE_LINES_WANTED = 250
TEST_LINES = 600
STATEMENTS = 40
VERBS = 16
SEAM = Path("src/bide/engines/aio.py")
SUFFIXES = {".py", ".lua", ".sql"}
VAGUE = {"utils", "helpers", "common", "manager"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def files(root: Path, *folders: str) -> list[Path]:
    found = (path for folder in folders for path in (root / folder).rglob("*"))
    return sorted(path for path in found if path.suffix in SUFFIXES)


def length(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def statements(function: Function) -> int:
    """Statements at any depth; the docstring is none."""
    return sum(isinstance(node, ast.stmt) for node in ast.walk(function)) - 1 - (ast.get_docstring(function) is not None)


def verbs(module: ast.Module) -> list[str]:
    """The abstract methods of AsyncEngine."""
    engine = next((node for node in module.body if isinstance(node, ast.ClassDef) and node.name == "AsyncEngine"), None)
    methods = [node for node in engine.body if isinstance(node, Function)] if engine else []
    return [method.name for method in methods if any(ast.unparse(each) == "abstractmethod" for each in method.decorator_list)]


def faults(root: Path) -> Iterator[str]:
    for path in files(root, "src", "tools"):
        name = path.relative_to(root)
        if length(path) > FILE_LINES:
            yield f"{name} has {length(path)} lines; at most {FILE_LINES}"
        vague = VAGUE.intersection(part.strip("_") for part in name.with_suffix("").parts)
        if vague:
            yield f"{name}: '{vague.pop()}' says nothing about what is in there; name the thing"
        if path.suffix == ".py":
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, Function) and statements(node) > STATEMENTS:
                    yield f"{name}:{node.lineno} {node.name} has {statements(node)} statements; at most {STATEMENTS}"
    for path in files(root, "tests"):
        if length(path) > TEST_LINES:
            yield f"{path.relative_to(root)} has {length(path)} lines; at most {TEST_LINES}"
    found = verbs(ast.parse((root / SEAM).read_bytes())) if (root / SEAM).exists() else []
    if len(found) != VERBS:
        yield f"{SEAM}: AsyncEngine has {len(found)} abstract methods, not {VERBS}: {' '.join(found)}"


def main(root: Path = ROOT) -> int:
    broken = list(faults(root))
    if broken:
        print("\n".join(broken), file=sys.stderr)
        return 1
    measured = {path.relative_to(root): length(path) for path in files(root, "src", "tools")}
    long = [f"{path} {lines}" for path, lines in measured.items() if lines > FILE_LINES_WANTED]
    remark = f"over {FILE_LINES_WANTED}: {', '.join(long)}" if long else f"none over {FILE_LINES_WANTED}"
    print(f"limits: {len(measured)} files, {sum(measured.values())} lines, {remark}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
