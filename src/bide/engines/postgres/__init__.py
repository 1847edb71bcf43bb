"""Messages in PostgreSQL: in a schema of their own, in the caller's own transaction if that is wanted.

`postgres://user:password@host:5432/database` names the database.
"""

from bide.engines.base import Capabilities, Finding, Settings
from bide.engines.postgres.aio.engine import AsyncPostgres
from bide.engines.postgres.location import Address, read
from bide.engines.postgres.sync.engine import Postgres
from bide.errors import ConfigError

CAPABILITIES = Capabilities(accepted="committed, as the server's synchronous_commit says", max_body=2**29)


class PostgresSource:
    capabilities = CAPABILITIES

    def __init__(self, address: Address, settings: Settings) -> None:
        self._address = address
        self._settings = settings
        self.shown: str = address.shown
        self.namespace: str = address.namespace

    def aio(self) -> AsyncPostgres:
        return AsyncPostgres(self._address, CAPABILITIES, self._settings.dead_for, self._settings.dead_max)

    def sync(self) -> Postgres:
        return Postgres(self._address, CAPABILITIES, self._settings.dead_for, self._settings.dead_max)

    def examine(self) -> list[Finding]:
        return []

    def mend(self) -> None:
        """Nothing of what examine finds can be set right from here."""


def source(settings: Settings) -> PostgresSource:
    if settings.clock is not None:
        raise ConfigError("The PostgreSQL server's own clock counts: leave clock= out.")
    return PostgresSource(read(settings), settings)
