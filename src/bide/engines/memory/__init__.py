"""Messages in this process: for tests, demos, and work that may die with the process.

`memory://` belongs to one queue with its `.sync` and `.aio`; all queues of a process share `memory://name`.
"""

import re

from bide.clock import SystemClock
from bide.engines.base import MAX_BATCH, Capabilities, Finding, Settings
from bide.engines.memory.aio import AsyncMemory
from bide.engines.memory.store import Store
from bide.engines.memory.sync import Memory
from bide.errors import BadUrl, ConfigError

CAPABILITIES = Capabilities(accepted="stored in this process, and lost when it ends", persistent=False, together=MAX_BATCH)

_named: dict[tuple[str, str], Store] = {}


class MemorySource:
    """One store, for sync and async engines."""

    capabilities = CAPABILITIES

    def __init__(self, store: Store, shown: str, namespace: str) -> None:
        self._store = store
        self.shown = shown
        self.namespace = namespace

    def aio(self) -> AsyncMemory:
        return AsyncMemory(self._store, CAPABILITIES)

    def sync(self) -> Memory:
        return Memory(self._store, CAPABILITIES)

    def examine(self) -> list[Finding]:
        return [Finding("place", "this process: what is here is gone with it")]

    def mend(self) -> None:
        """There is nothing to set right."""


def source(settings: Settings) -> MemorySource:
    name = settings.url.removeprefix("memory://")
    if not re.fullmatch(r"[A-Za-z0-9._-]{0,128}", name, re.ASCII):
        raise BadUrl(
            "A memory URL is memory:// alone, or memory:// and a name of A-Z a-z 0-9 . _ - to share it in the process."
        )
    if settings.client is not None:
        raise ConfigError("The memory engine has no driver: leave client= out.")
    if name:
        store = _named.setdefault((name, settings.namespace), _new(settings))
        if settings.clock is not None and store.clock is not settings.clock:
            raise ConfigError(f"memory://{name} runs by another clock in this process: give it a name of its own.")
    else:
        store = _new(settings)
    return MemorySource(store, settings.url, settings.namespace)


def _new(settings: Settings) -> Store:
    return Store(settings.clock or SystemClock(), settings.dead_for, settings.dead_max)
