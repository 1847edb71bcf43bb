"""The database of a URL."""

from bide.adopt.table.database import Database
from bide.errors import BadUrl


def database(url: str) -> Database:
    """Raises BadUrl for another kind of database, and what the database raises."""
    scheme = url.partition(":")[0]
    if scheme == "sqlite":
        from bide.adopt.table.sqlite import SQLite  # noqa: PLC0415

        return SQLite(url)
    if scheme in ("postgres", "postgresql"):
        from bide.adopt.table.postgres import Postgres  # noqa: PLC0415 (its driver is an extra)

        return Postgres(url)
    raise BadUrl("The table must be in PostgreSQL or SQLite: postgres://host/database, or sqlite:///file.db.")
