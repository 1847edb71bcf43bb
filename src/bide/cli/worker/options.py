"""The options of `bide worker`, and the command line of a process that does a part of its work."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import typer


class WorkerOptions(NamedTuple):
    queue_path: str
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
    def slots_of_topics(self) -> Mapping[str, int]:
        """What --slots says."""
        slots = {}
        for each in self.slots:
            topic, mark, number = each.rpartition("=")
            if not mark or not number.isdecimal():
                raise typer.BadParameter(f"{each!a} is not TOPIC=NUMBER, as in order.cancel=10.", param_hint="--slots")
            slots[topic] = int(number)
        return slots

    def command_line(self, **changed: Any) -> list[str]:
        """The command line with these options, but for those that are changed."""
        options = self._replace(**changed)
        command = [sys.executable, "-m", "bide", "worker", options.queue_path]
        for name, value in options._asdict().items():
            option = "--" + {"imports": "import"}.get(name, name.replace("_", "-"))
            if name == "queue_path" or value is None or value is False:
                continue
            if value is True:
                command.append(option)
            else:
                command += [part for each in (value if isinstance(value, tuple) else (value,)) for part in (option, str(each))]
        return command
