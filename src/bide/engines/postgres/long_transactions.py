"""Warns of transactions that are open for long: until they end, PostgreSQL keeps all rows of messages that have ended."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from bide.logs import Log

LOOK = 15.0  # seconds between two looks; with the age below, the first warning comes within a minute
AGAIN = 60.0  # seconds between two warnings of the same transaction

FIND = """
select a.pid, a.usename, a.application_name, a.state, pg_catalog.date_trunc('second', a.xact_start)::pg_catalog.text,
    extract(epoch from pg_catalog.clock_timestamp() operator(pg_catalog.-) a.xact_start)::int, s.n_dead_tup
from pg_catalog.pg_stat_activity a, pg_catalog.pg_stat_all_tables s
where s.relid operator(pg_catalog.=) '{schema}.message'::pg_catalog.regclass::pg_catalog.oid
    and s.n_dead_tup operator(pg_catalog.>=) 1000::bigint
    and a.datname operator(pg_catalog.=) pg_catalog.current_database()
    and a.backend_type operator(pg_catalog.=) 'client backend' and a.pid operator(pg_catalog.<>) pg_catalog.pg_backend_pid()
    and (a.backend_xmin is not null or a.backend_xid is not null)
    and a.xact_start operator(pg_catalog.<) (pg_catalog.clock_timestamp() operator(pg_catalog.-) interval '30 seconds')
order by a.xact_start limit 5
"""
"""The oldest ones that keep rows, if there are rows to keep. All names have schemas: it runs with the user's search_path."""

_log = Log("bide.postgres")


class LongTransactions:
    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._looked = clock()
        self._warned: dict[tuple[int, str], float] = {}

    def is_time(self) -> bool:
        """Whether to look now. True for one caller."""
        now = self._clock()
        if now < self._looked + LOOK:
            return False
        self._looked = now
        return True

    def warn(self, found: Sequence[Sequence[Any]]) -> None:
        """Of each that is among what was found, once a minute."""
        now = self._clock()
        self._warned = {which: at for which, at in self._warned.items() if now < at + AGAIN}
        for pid, user, application, state, since, seconds, dead in found:
            if (pid, since) in self._warned:
                continue
            self._warned[pid, since] = now
            _log.warning(
                "A transaction of PostgreSQL is open for %d seconds, since %s: process %d, user %s, application_name %r, %s. "
                "Until it ends, the server keeps about %d rows of messages that have ended, and gets slower. End it, for "
                "example by pg_terminate_backend(%d).",
                seconds,
                since,
                pid,
                user,
                application or "",
                state,
                dead,
                pid,
            )
