"""What was asked of `bide worker`, and the command line of a process that does a part of it."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import typer


class Wanted(NamedTuple):
    target: str
    imports: tuple[str, ...] = ()
    topics: tuple[str, ...] = ()
    concurrency: int | None = None
    threads: int | None = None
    slots: tuple[str, ...] = ()
    lease: str | None = None
    grace: str | None = None
    processes: int | None = None
    health: str | None = None
    reload: bool = False
    log_format: str = "text"
    log_level: str = "info"
    claim_log: Path | None = None
    lifeline: int | None = None

    @property
    def places_kept(self) -> Mapping[str, int]:
        """What --slots says."""
        kept = {}
        for each in self.slots:
            topic, mark, number = each.rpartition("=")
            if not mark or not number.isdecimal():
                raise typer.BadParameter(f"{each!a} is not TOPIC=NUMBER, as in order.cancel=10.", param_hint="--slots")
            kept[topic] = int(number)
        return kept

    def again(self, **changed: Any) -> list[str]:
        """The command line that asks for the same, but for what is changed."""
        wanted = self._replace(**changed)
        command = [sys.executable, "-m", "bide", "worker", wanted.target]
        for name, value in wanted._asdict().items():
            option = "--" + {"imports": "import"}.get(name, name.replace("_", "-"))
            if name == "target" or value is None or value is False:
                continue
            if value is True:
                command.append(option)
            else:
                command += [part for each in (value if isinstance(value, tuple) else (value,)) for part in (option, str(each))]
        return command
