"""Messages in PostgreSQL: each namespace in a schema of its own.

`postgres://user:password@host:5432/database` names the database.
"""

from bide.engines.base import MAX_BATCH, Capabilities, Finding, Settings
from bide.engines.postgres import doctor
from bide.engines.postgres.aio.engine import AsyncPostgres
from bide.engines.postgres.layout import FoundMigrations, told
from bide.engines.postgres.location import Address, read
from bide.engines.postgres.sync.connections import Connections
from bide.engines.postgres.sync.engine import Postgres
from bide.engines.postgres.sync.migrations import Migrator
from bide.errors import ConfigError

CAPABILITIES = Capabilities(
    accepted="committed, as the server's synchronous_commit says",
    transactional=True,
    max_body=2**29,
    together=MAX_BATCH,
)


class PostgresSource:
    capabilities = CAPABILITIES

    def __init__(self, address: Address, settings: Settings) -> None:
        self._address = address
        self._settings = settings
        self.shown: str = address.shown
        self.namespace: str = address.namespace
        self.schema: str = address.schema

    def aio(self) -> AsyncPostgres:
        return AsyncPostgres(self._address, CAPABILITIES, self._settings.dead_for, self._settings.dead_max)

    def sync(self) -> Postgres:
        return Postgres(self._address, CAPABILITIES, self._settings.dead_for, self._settings.dead_max)

    def migrating(self) -> Migrator:
        """The tables and functions of the namespace, to be made or brought to this release's layout."""
        return Migrator(self._address, Connections(self._address).connect)

    def told(self, found: FoundMigrations) -> str:
        """Where the tables stand, as a sentence without its end."""
        return told(self.shown, self.schema, found)

    def examine(self) -> list[Finding]:
        return doctor.examine(self._address)

    def mend(self) -> None:
        """Nothing of what examine finds can be set right from here."""


def source(settings: Settings) -> PostgresSource:
    if settings.clock is not None:
        raise ConfigError("The PostgreSQL server's own clock counts: leave clock= out.")
    return PostgresSource(read(settings), settings)
