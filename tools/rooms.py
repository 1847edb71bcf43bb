"""The rules between the rooms of the package: no circle of imports, and no private name of another room.

A room is a folder of src/bide, or a folder in one; `aio` and `sync` belong to the folder that they are in. A room may use
the private names of the rooms in it, as queue/aio/task.py those of queue/tasks, and no others. import-linter holds the
floors, but it passes over imports under TYPE_CHECKING and knows nothing of attributes.
"""

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]

# What there still is of both, on its way out. An entry that is no longer needed is a fault, too.
KNOWN_IMPORTS: frozenset[tuple[str, str]] = frozenset()  # left out when circles are looked for
KNOWN_USES: frozenset[tuple[str, str]] = frozenset()  # a room, and a private name of another that it uses
NOT_OURS = {"_asdict", "_fields", "_make", "_replace", "_reader"}  # of NamedTuple, and of the driver for Redis


class Module(NamedTuple):
    name: str
    room: str
    path: Path
    nodes: Sequence[ast.AST]  # of all its code


def modules(root: Path) -> dict[str, Module]:
    found = {}
    for path in sorted((root / "src" / "bide").rglob("*.py")):
        parts = path.relative_to(root / "src").with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        room = "/".join([part for part in parts[1:-1] if part not in ("aio", "sync")][:2]) or "bide"
        found[name] = Module(name, room, path.relative_to(root), list(ast.walk(ast.parse(path.read_bytes()))))
    return found


def imported(module: Module, known: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The modules of the package that this one imports, wherever in its file; and what it takes from each."""
    for node in module.nodes:
        if isinstance(node, ast.Import):
            yield from ((each.name, "") for each in node.names if each.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            for each in node.names:
                inner = f"{node.module}.{each.name}"
                if inner in known:
                    yield inner, ""
                elif node.module in known:
                    yield node.module, each.name


def circles(graph: Mapping[str, set[str]]) -> list[list[str]]:
    """Modules that can be reached from themselves, together with those on the way. Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(graph[name]):
            if other not in index:
                visit(other)
            if other in stack:
                low[name] = min(low[name], low[other])
        if low[name] == index[name]:
            place = stack.index(name)
            circle, stack[place:] = sorted(stack[place:]), []
            if len(circle) > 1 or name in graph[name]:
                found.append(circle)

    for name in sorted(graph):
        if name not in index:
            visit(name)
    return found


def circle_faults(all_of_them: Mapping[str, Module], known: frozenset[tuple[str, str]]) -> Iterator[str]:
    graph = {name: {other for other, _ in imported(module, all_of_them)} for name, module in all_of_them.items()}
    whole = circles(graph)
    for one, other in sorted(known):
        if not any(one in circle and other in circle for circle in whole) or other not in graph[one]:
            yield f"tools/rooms.py: {one} → {other} is in no circle any more; take it out of KNOWN_IMPORTS"
    for circle in circles({name: {each for each in others if (name, each) not in known} for name, others in graph.items()}):
        yield f"These modules import each other in a circle: {', '.join(circle)}"


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name not in NOT_OURS


def defined(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """The private names that a file gives to something of its own."""
    for node in nodes:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.Name(id=name, ctx=ast.Store()):
                yield name
            case ast.Attribute(value=ast.Name(id="self" | "cls"), attr=name, ctx=ast.Store()):
                yield name
            case ast.Assign(targets=[ast.Name(id="__slots__")], value=ast.Tuple(elts=names)):
                yield from (each.value for each in names if isinstance(each, ast.Constant) and isinstance(each.value, str))


def private_faults(all_of_them: Mapping[str, Module], known: frozenset[tuple[str, str]]) -> Iterator[str]:
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for module in all_of_them.values():
        for name in filter(is_private, defined(module.nodes)):
            owners[name].add(module.room)
    met = set()
    for module in all_of_them.values():
        used = [(node.lineno, node.attr) for node in module.nodes if isinstance(node, ast.Attribute)]
        taken = [(1, name) for other, name in imported(module, all_of_them) if all_of_them[other].room != module.room]
        for line, name in filter(lambda use: is_private(use[1]), [*used, *taken]):
            if name in owners and not any(f"{owner}/".startswith(f"{module.room}/") for owner in owners[name]):
                met.add((module.room, name))
                if (module.room, name) not in known:
                    rooms = " or ".join(sorted(owners[name]))
                    yield f"{module.path}:{line} uses {name}, which is private to {rooms}: make it public there"
    for room, name in sorted(known - met):
        yield f"tools/rooms.py: {room} uses no {name} of another room any more; take it out of KNOWN_USES"


def main(root: Path = ROOT) -> int:
    found = modules(root)
    faults = [*circle_faults(found, KNOWN_IMPORTS), *private_faults(found, KNOWN_USES)]
    if faults:
        print("\n".join(faults), file=sys.stderr)
        return 1
    rest = f"; {len(KNOWN_IMPORTS)} imports and {len(KNOWN_USES)} uses are still known" if KNOWN_IMPORTS or KNOWN_USES else ""
    print(f"rooms: {len(found)} modules, no circle of imports, no private name of another room{rest}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
