"""Messages in one SQLite file: nothing to set up, and nothing lost when a process is killed.

`sqlite:///bide.db` is a file in the current folder, `sqlite:////var/lib/bide.db` one anywhere. Any number of processes
of one machine may use it.
"""

from bide.clock import MS
from bide.engines.base import MAX_BATCH, Capabilities, Finding, Settings
from bide.engines.sqlite import file
from bide.engines.sqlite.aio import AsyncSqlite
from bide.engines.sqlite.clock import MachineClock
from bide.engines.sqlite.doctor import examine, mend
from bide.engines.sqlite.sync import Sqlite
from bide.engines.sqlite.transaction import FileNamespace
from bide.errors import ConfigError

CAPABILITIES = Capabilities(
    accepted="committed to the file and synced to the disk", transactional=True, max_body=2**29, together=MAX_BATCH
)


class SqliteSource:
    capabilities = CAPABILITIES

    def __init__(self, path: str, namespace: FileNamespace) -> None:
        self._path = path
        self._namespace = namespace
        self.shown: str = f"sqlite:///{path}"
        self.namespace: str = namespace.name

    def aio(self) -> AsyncSqlite:
        return AsyncSqlite(self._path, self._namespace, CAPABILITIES)

    def sync(self) -> Sqlite:
        return Sqlite(self._path, self._namespace, CAPABILITIES)

    def examine(self) -> list[Finding]:
        return examine(self._path, self._namespace.clock.now_ns() // MS)

    def mend(self) -> list[Finding]:
        return mend(self._path, self._namespace.clock.now_ns() // MS)


def source(settings: Settings) -> SqliteSource:
    if settings.client is not None:
        raise ConfigError(
            "The SQLite engine opens its file itself: leave client= out, and use connection= to join a transaction."
        )
    namespace = FileNamespace(settings.namespace, settings.clock or MachineClock(), settings.dead_for, settings.dead_max)
    path = file.path_of(settings.url)
    if not settings.named:
        file.unnamed.add(path)
    return SqliteSource(path, namespace)
