"""What the runner has to know of a peer; what it does is in its program."""

import itertools
import tomllib
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
PROGRAMS = HERE / "programs"
VERSIONS = HERE / "versions.toml"
BUILD = HERE.parents[1] / "build" / "peers"


@dataclass(frozen=True)
class Peer:
    """In commands, {bin} is the folder of its environment's programs, {program} its program, and {url} its server."""

    name: str
    title: str
    package: str
    """Whose version is shown."""
    workers: tuple[str, ...]
    """The commands that a worker takes, at its documented best settings."""
    settings: str
    """What these settings are, for the reader."""
    documented: str
    """Where they are documented."""
    many: int
    """Messages in a drain, some seconds of work; a burst has half of them."""
    batch: str = ""
    """How it sends many; empty: it can't."""
    sent: int = 0
    """Messages in a measured batch."""
    server: str = "redis"
    lead: float = 4.0
    """Seconds until a burst is due: enough to send it."""
    drain: tuple[str, ...] = ()
    """The commands for a drain, where others are best for messages that are due already."""
    prepare: str = ""
    """A command that makes its tables, before anything else."""
    environment: tuple[tuple[str, str], ...] = ()
    """Environment variables of its worker."""
    same_as: str = ""
    """The peer whose program and packages it has, with another server."""

    @property
    def home(self) -> str:
        """The name of its program and of its environment."""
        return self.same_as or self.name

    @property
    def node(self) -> bool:
        return "npm" in pins().get(self.home, {})

    @property
    def program(self) -> Path:
        return PROGRAMS / f"on_{self.home}.{'js' if self.node else 'py'}"

    @property
    def folder(self) -> Path:
        """Its environment, which `install` makes."""
        return BUILD / self.home

    @property
    def version(self) -> str:
        for pin in itertools.chain(*pins().get(self.home, {}).values()):
            name, _, version = pin.replace("==", "@").partition("@")
            if name == self.package:
                return version
        return ""


def pins() -> dict[str, dict[str, list[str]]]:
    """The packages of each environment; `python`: the versions of Python it takes, best first, if this one is too old."""
    return tomllib.loads(VERSIONS.read_text(encoding="utf-8"))
