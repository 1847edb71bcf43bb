"""Prints the lowest versions that pyproject.toml allows of what bide and its tests import, as pip wants them."""

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# They read the code, and nothing imports them.
READERS = {"import-linter", "mkdocs-material", "mkdocstrings", "mypy", "pyright", "ruff"}
BOUND = re.compile(r"(?P<name>[\w.-]+)(?P<extras>\[.+\])?>=(?P<version>[\d.]+(b\d+)?)(?P<marker>\s*;.*)?")


def lowest(project: dict[str, Any]) -> Iterator[str]:
    """What the package and its tests need; an extra of the package itself stands for what is in it."""
    extras = project["optional-dependencies"]
    waiting = [*project["dependencies"], *extras["dev"]]
    while waiting:
        requirement = waiting.pop(0)
        own = re.fullmatch(rf"{project['name']}\[(.+)\]", requirement)
        if own:
            waiting += [each for extra in own[1].split(",") for each in extras[extra]]
        elif re.split(r"[\[><=; ]", requirement)[0] not in READERS:
            bound = BOUND.fullmatch(requirement)
            if bound is None:
                raise SystemExit(f"pyproject.toml: {requirement} names no lowest version alone. Write it as name>=1.2")
            yield f"{bound['name']}{bound['extras'] or ''}=={bound['version']}{bound['marker'] or ''}"


def main(root: Path = ROOT) -> int:
    told = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    print("\n".join(lowest(told["project"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
