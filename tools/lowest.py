"""Prints the lowest versions that pyproject.toml allows of what bide and its tests import, as pip wants them."""

import argparse
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
JUDGES = {"import-linter", "mypy", "pyright", "ruff"}  # they read the code, and are not imported by it
BOUND = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)(?P<extras>\[[^]]*\])?>=(?P<version>[0-9.]+)(?P<marker>\s*;.*)?")


def lowest(project: Path, extra: str = "dev") -> Iterator[str]:
    """What the package needs, and what the extra does; an extra of bide itself stands for what is in it."""
    told = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    yield from _pinned([*told["dependencies"], *told["optional-dependencies"][extra]], told)


def _pinned(requirements: list[str], told: dict[str, dict[str, list[str]]]) -> Iterator[str]:
    for requirement in requirements:
        own = re.fullmatch(r"bide\[(.*)\]", requirement)
        if own:
            for extra in own[1].split(","):
                yield from _pinned(told["optional-dependencies"][extra], told)
        elif re.split(r"[\[><=]", requirement)[0] not in JUDGES:
            found = BOUND.fullmatch(requirement)
            if found is None:
                raise SystemExit(f"{requirement} names no lowest version: write it as name>=1.2")
            yield f"{found['name']}{found['extras'] or ''}=={found['version']}{found['marker'] or ''}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python tools/lowest.py", description=__doc__)
    parser.parse_args(arguments)
    print("\n".join(lowest(ROOT / "pyproject.toml")))
    return 0


if __name__ == "__main__":
    sys.exit(main())
