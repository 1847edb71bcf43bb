"""The memory engine as one that says it can do little. `modest://name` finds it where the fixture `modest_url` is used."""

from collections.abc import Callable, Sequence
from uuid import uuid4

from msgspec.structs import replace

from bide.engines import memory
from bide.engines.aio import AsyncEngine
from bide.engines.base import Capabilities, Finding, Settings
from bide.engines.registry import Source
from bide.engines.sync import Engine

LEAST = replace(
    memory.CAPABILITIES,
    cancel=False,
    lookup=False,
    keys=False,
    idempotent=False,
    extend=False,
    inspect=False,
    dead=False,
    pause=False,
    priority=False,
    gates=False,
    traces=False,
    results=False,
    past=False,
)
BURYING = replace(LEAST, extend=True, dead=True)  # knows nothing of what is pending, but its dead letters
LONGEST = 3_000 * 86_400_000
CAPABILITIES = replace(BURYING, persistent=True, ordered=False, max_delay=LONGEST)  # as of a server, for commands


class Modest:
    """A place of the memory engine."""

    def __init__(self, plain: Source, capabilities: Capabilities) -> None:
        self.capabilities: Capabilities = capabilities
        self.shown: str = "modest://"
        self.namespace: str = plain.namespace
        self._plain = plain

    def aio(self) -> AsyncEngine:
        engine = self._plain.aio()
        engine.capabilities = self.capabilities
        return engine

    def sync(self) -> Engine:
        engine = self._plain.sync()
        engine.capabilities = self.capabilities
        return engine

    def examine(self) -> Sequence[Finding]:
        return self._plain.examine()

    def mend(self) -> Sequence[Finding] | None:
        return self._plain.mend()


def modest(capabilities: Capabilities) -> Callable[..., Source]:
    """Makes sources of one place, whose engines say that they can do no more than this."""
    url = f"memory://{uuid4().hex}"
    return lambda **settings: Modest(memory.source(Settings(url=url, **settings)), capabilities)


def source(settings: Settings) -> Source:
    """As the registry finds it: `modest://name` is `memory://name`."""
    plain = replace(settings, url=settings.url.replace("modest://", "memory://", 1))
    return Modest(memory.source(plain), CAPABILITIES)
