"""How a pool of psycopg makes its connections, for an engine that makes its own in the same way."""

import inspect
from collections.abc import Mapping
from typing import Any

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bide.errors import ConfigError

_KNOWN = frozenset(option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults())


class Pool:
    """Its repr tells nothing, as what the pool holds may be secret."""

    def __init__(self, client: object) -> None:
        from psycopg_pool import AsyncConnectionPool, ConnectionPool  # noqa: PLC0415 (starts no threads, but takes its time)

        if not isinstance(client, (ConnectionPool, AsyncConnectionPool)):
            raise ConfigError(
                f"client= is a {type(client).__name__}. Give a ConnectionPool or an AsyncConnectionPool of psycopg_pool, or "
                "leave it out and name the server in the URL. To send in a transaction of yours, give its "
                "connection to a call: queue.send(…, connection=…)."
            )
        self._pool: Any = client
        self.changes: bool = callable(self._pool.conninfo) or callable(self._pool.kwargs)

    def conninfo(self) -> dict[str, Any]:
        """Where to connect, and as whom. A pool may have a function tell it anew each time, as for passwords that expire."""
        text, options = _told(self._pool.conninfo) or "", _told(self._pool.kwargs) or {}
        try:
            found: Mapping[str, Any] = conninfo_to_dict(text)
        except psycopg.ProgrammingError:
            raise ConfigError("The pool's conninfo can't be read by libpq: try the pool by itself.") from None
        return {**found, **{name: value for name, value in options.items() if name in _KNOWN}}


def _told(given: Any) -> Any:
    found = given() if callable(given) else given
    if inspect.iscoroutine(found):
        found.close()
    if inspect.isawaitable(found):
        raise ConfigError("The pool's conninfo or kwargs is an async function: give the pool one that is not async.")
    return found
