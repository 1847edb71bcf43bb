"""What an operator should know of a database: rights, layout, bloat, long transactions, the plan of a claim."""

from collections.abc import Iterator, Mapping
from typing import Any

import psycopg

from bide.core import formats
from bide.core.options import OWN_TOPICS
from bide.engines.base import Finding
from bide.engines.findings import Check, judged, run, unreached
from bide.engines.postgres.failures import translated
from bide.engines.postgres.layout import OURS, named
from bide.engines.postgres.location import Address
from bide.engines.postgres.statements import Limited
from bide.engines.postgres.sync.connections import Connections
from bide.errors import EngineError, Unavailable

OLD_TRANSACTION = 60.0  # seconds: what ended since then can't be cleaned up
MANY_DEAD = 0.5  # of a table's rows
FEW = 10_000  # dead rows that don't matter
LATE = 60.0  # seconds overdue
CLOCKS_APART = 10.0  # seconds
OLDEST_VERSION = 150_000
PATIENCE = 60.0  # seconds for an answer; a question about 100,000 topics takes some
UNANSWERED = "the question took too long, or this user may not ask it"
NEARLY_ALL = 0.9  # of the connections that the server takes

QUESTIONS: Mapping[str, str] = {
    "there": "select 1 from pg_namespace where nspname = '{schema}'",
    "server": "select current_setting('server_version'), current_setting('server_version_num')::int, pg_is_in_recovery()",
    "settings": "select current_setting('synchronous_commit'), current_setting('fsync'), current_setting('full_page_writes'), "
    "current_setting('autovacuum')",
    "rights": "select has_schema_privilege('{schema}', 'usage'), (select coalesce(string_agg(distinct l.name, ', '), '') from ("
    "select c.relname::text from pg_class c, unnest(case c.relkind when 'r' then array['select', 'insert', 'update', 'delete'] "
    "when 'S' then array['usage', 'update'] when 'v' then array['select'] end) as p(needed) "
    "where c.relnamespace = '\"{schema}\"'::regnamespace and not case c.relkind when 'S' "
    "then has_sequence_privilege(c.oid, needed) else has_table_privilege(c.oid, needed) end union all "
    "select f.proname || '()' from pg_proc f where f.pronamespace = '\"{schema}\"'::regnamespace "
    "and not has_function_privilege(f.oid, 'execute')) as l(name))",
    "layout": "select number, finished from bide.layout",
    "transactions": "select pid, coalesce(usename::text, ''), coalesce(application_name, ''), coalesce(state, ''), "
    "extract(epoch from now() - xact_start)::float from pg_stat_activity where (backend_xmin is not null or "
    "backend_xid is not null) and backend_type <> 'autovacuum worker' "
    "and pid <> pg_backend_pid() and datname = current_database() and xact_start < now() - interval '1 second' "
    "order by xact_start limit 1",
    "sees all": "select pg_has_role('pg_read_all_stats', 'usage')",
    "prepared": "select count(*), extract(epoch from now() - min(prepared))::float from pg_prepared_xacts "
    "where database = current_database()",
    "slots": "select slot_name from pg_replication_slots where not active and (xmin is not null or "
    "pg_wal_lsn_diff(case when pg_is_in_recovery() then "
    "pg_last_wal_replay_lsn() else pg_current_wal_lsn() end, restart_lsn) > 1073741824)",
    "connections": "select count(*), current_setting('max_connections')::int - "
    "current_setting('superuser_reserved_connections')::int from pg_stat_activity where backend_type = 'client backend'",
    "indexes": "select c.relname::text from pg_index i join pg_class c on c.oid = i.indexrelid "
    "where c.relnamespace = '\"{schema}\"'::regnamespace and i.indisvalid",
    "unvacuumed": "select c.relname::text from pg_class c, pg_options_to_table(c.reloptions) as o "
    "where c.relnamespace = '\"{schema}\"'::regnamespace and o.option_name = 'autovacuum_enabled' "
    "and not o.option_value::boolean",
    "tables": "select s.relname, s.n_live_tup, s.n_dead_tup, pg_total_relation_size(s.relid), pg_indexes_size(s.relid), "
    "extract(epoch from now() - greatest(s.last_autovacuum, s.last_vacuum))::float from pg_stat_user_tables s "
    "where s.schemaname = '{schema}' order by s.relname",
    "locks": "select count(*), coalesce(extract(epoch from max(now() - a.state_change))::float, 0) from pg_locks l "
    "join pg_stat_activity a on a.pid = l.pid where not l.granted and (l.relation is null or l.relation in "
    "(select c.oid from pg_class c where c.relnamespace = '\"{schema}\"'::regnamespace))",
    "may create": "select has_database_privilege(current_database(), 'create')",
    "replicas": "select count(*), count(*) filter (where sync_state in ('sync', 'quorum')), "
    "coalesce(extract(epoch from max(replay_lag))::float, 0), current_setting('synchronous_standby_names') <> '' and "
    "current_setting('synchronous_commit') not in ('off', 'local'), count(*) = count(sync_state) from pg_stat_replication",
    "times": "select extract(epoch from clock_timestamp())::float, bide.engine_us(null, false) / 1000000.0::float",
    "overdue": "select max(bide.engine_us(null, false) / 1000 - bide.first_after(t, -1, 9223372036854775807)) / 1000.0::float "
    "from bide.topics() as t where not exists (select 1 from bide.topic p where p.name = t and p.paused) "
    f"and t not in ({', '.join(map(repr, OWN_TOPICS))})",
    "plan": "explain (format text) select m.id, m.due from bide.message m where m.topic = 'x' and m.level = 1 "
    "and m.until is null and m.due between -1 and 1 order by m.due, m.id limit 100",
}


def examine(address: Address) -> list[Finding]:
    """Asks the server. Nothing is made there."""
    findings, examination = [Finding("database", address.shown)], _Examination(address)
    try:
        findings += examination.findings()
    except (psycopg.Error, EngineError) as error:
        told = translated(error, address.shown) if isinstance(error, psycopg.Error) else error
        findings.append(unreached(told, "server"))
    finally:
        examination.close()
    return findings


class _Examination:
    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: Limited | None = None

    def findings(self) -> Iterator[Finding]:
        """Raises when the server can't be reached."""
        self._connected()
        yield from run(_OF_SERVER, self, self._why)
        yield from run(_OF_SCHEMA if self._rows("there") else {"layout": _Examination.nothing_yet}, self, self._why)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> Limited:
        """The connection, or a new one after an answer that never came."""
        if self._connection is None or self._connection.closed:
            self._connection = Connections(self._address).connect()
            self._connection.limit = PATIENCE
        return self._connection

    def _rows(self, name: str) -> list[tuple[Any, ...]]:
        """The answer. Raises where this user may not ask, the table is missing, or no answer comes."""
        asked = named(QUESTIONS[name], self._address.schema).replace("{schema}", self._address.schema)
        connection = self._connected()
        try:
            with connection.transaction():  # behind a pooler, nothing may be set for longer
                connection.execute(b"set local search_path = pg_catalog, pg_temp; set local enable_seqscan = off")
                return connection.execute(asked.encode()).fetchall()
        except TimeoutError as error:
            connection.drop()
            raise Unavailable(UNANSWERED) from error

    def _why(self, error: Exception) -> str | None:
        if isinstance(error, psycopg.errors.InsufficientPrivilege):
            return UNANSWERED
        return str(translated(error, self._address.shown)) if isinstance(error, psycopg.Error) else None

    def nothing_yet(self) -> Iterator[Finding]:
        value = f"there is no schema {self._address.schema} yet"
        if self._address.migrate and (True,) in self._rows("may create"):
            yield Finding("layout", f"{value}: it is made on first use")
        else:
            advice = "run `bide migrate` as a user who may create it, and grant what the page PostgreSQL lists under Its tables"
            yield Finding("layout", value, "bad", advice)

    def server(self) -> Iterator[Finding]:
        for version, number, standby in self._rows("server"):
            yield judged("server", f"PostgreSQL {version}", "bad", "15 or newer is needed", when=number < OLDEST_VERSION)
            if standby:
                yield Finding("role", "a standby, which takes no changes", "bad", "name the primary in the URL")

    def settings(self) -> Iterator[Finding]:
        for commit, fsync, pages, vacuum in self._rows("settings"):
            advice = "a crash of the server loses what was accepted in its last moments: set synchronous_commit = on"
            yield judged("synchronous_commit", commit, "warn", advice, when=commit == "off")
            advice = "a crash of the machine can destroy the database: set fsync and full_page_writes on"
            yield judged("fsync", fsync, "bad", advice, when="off" in (fsync, pages))
            advice = "finished messages are never cleaned up: set autovacuum = on"
            yield judged("autovacuum", vacuum, "bad", advice, when=vacuum == "off")

    def replicas(self) -> Iterator[Finding]:
        for count, synchronous, lag, awaited, seen in self._rows("replicas"):
            what = f"{count}, {synchronous} of them synchronous, {lag:.1f} s behind at most"
            if awaited and seen and not synchronous:
                advice = "each commit waits for one: start the standby, or change synchronous_standby_names"
                yield Finding("replicas", f"none that is synchronous, of {count}", "bad", advice)
            elif count:
                advice = "after a failover to it, what it has not replayed is late or lost: see pg_stat_replication"
                yield judged("replicas", what, "warn", advice, when=lag > LATE)

    def connections(self) -> Iterator[Finding]:
        for count, most in self._rows("connections"):
            advice = "soon nobody gets in: raise max_connections, or use a pooler"
            yield judged("connections", f"{count} of {most}", "warn", advice, when=count > NEARLY_ALL * most)

    def layout(self) -> Iterator[Finding]:
        for number, finished in self._rows("layout"):
            advice = "run `bide migrate`" if number < OURS.number else "update bide here"
            wrong = number < OURS.number or finished > OURS.number
            yield judged("layout", f"{number} of {OURS.number}", "bad", advice, when=wrong)

    def rights(self) -> Iterator[Finding]:
        for usage, lacking in self._rows("rights"):
            advice = "grant them: the page PostgreSQL of the documentation has the statements, under Its tables"
            what = "all that a worker needs" if usage and not lacking else f"lacking: {lacking or 'usage of the schema'}"
            yield judged("rights", what, "bad", advice, when=not usage or bool(lacking))

    def transactions(self) -> Iterator[Finding]:
        oldest = self._rows("transactions")
        whose = "" if (True,) in self._rows("sees all") else " of this user; to see all, grant it the role pg_read_all_stats"
        for pid, user, program, state, seconds in oldest:
            what = f"{formats.span(seconds)}: pid {pid}, user {user}, program {program or 'unnamed'}, {state}"
            advice = "messages that ended since it began can't be cleaned up, and slow claims down: commit it or end it"
            yield judged("oldest transaction", what, "warn", advice, when=seconds > OLD_TRANSACTION)
        if not oldest:
            yield Finding("oldest transaction", f"none older than a second{whose}")

    def prepared(self) -> Iterator[Finding]:
        for count, seconds in self._rows("prepared"):
            advice = "a forgotten prepared transaction keeps rows from being cleaned up: see pg_prepared_xacts"
            if count:
                what = f"{count}, the oldest for {formats.span(seconds) or '0 s'}"
                yield judged("prepared transactions", what, "warn", advice, when=seconds > OLD_TRANSACTION)

    def slots(self) -> Iterator[Finding]:
        for (name,) in self._rows("slots"):
            advice = (
                "nobody reads from it, and for it the server keeps rows or its log: drop it with pg_drop_replication_slot()"
            )
            yield Finding("replication slot", name, "warn", advice)

    def unvacuumed(self) -> Iterator[Finding]:
        for (name,) in self._rows("unvacuumed"):
            advice = f"finished messages are never cleaned up: alter table … reset (autovacuum_enabled) on {name}"
            yield Finding(f"autovacuum of {name}", "off", "bad", advice)

    def tables(self) -> Iterator[Finding]:
        for name, live, dead, size, indexes, vacuumed in self._rows("tables"):
            if name not in ("message", "dead", "answer"):
                continue
            when = "never vacuumed" if vacuumed is None else f"vacuumed {formats.span(vacuumed) or '0 s'} ago"
            rows = f"{formats.plural(live, 'row')}, {dead:,} dead"
            what = f"{rows}, {formats.size(size)} of which {formats.size(indexes)} are indexes; {when}"
            advice = "autovacuum can't keep up, or an old transaction hinders it"
            yield judged(f"table {name}", what, "warn", advice, when=dead > FEW and dead > MANY_DEAD * (live + dead))

    def indexes(self) -> Iterator[Finding]:
        there = {name for (name,) in self._rows("indexes")}
        for name, statement in OURS.indexes(self._address.schema).items():
            if there and name not in there:
                yield Finding(f"index {name}", "missing or broken", "bad", f"drop it if it is there, and run: {statement}")

    def plan(self) -> Iterator[Finding]:
        plan = "\n".join(line for (line,) in self._rows("plan"))
        if plan:
            good = "message_due" in plan and "Sort" not in plan
            advice = "the index message_due is missing, broken or not used: run reindex and analyze on the table message"
            what = "a walk along the index by due time" if good else plan.splitlines()[0].strip()
            yield judged("plan of a claim", what, "bad", advice, when=not good)

    def locks(self) -> Iterator[Finding]:
        for count, seconds in self._rows("locks"):
            advice = "somebody holds rows of messages in a long transaction: see pg_locks and pg_blocking_pids()"
            what = f"{count} waiting, the longest for {seconds:.0f} s" if count else "nobody waits"
            yield judged("locks", what, "warn", advice, when=count > 0 and seconds > 5)

    def times(self) -> Iterator[Finding]:
        for clock, engine in self._rows("times"):
            ahead = engine - clock
            advice = "the server's clock was set back: bide's time runs at half speed until the two agree"
            what = "as the server's clock" if ahead < 1 else f"{formats.span(ahead)} ahead of the server's clock"
            yield judged("engine time", what, "warn", advice, when=ahead > CLOCKS_APART)

    def overdue(self) -> Iterator[Finding]:
        for (seconds,) in self._rows("overdue"):
            overdue = max(0.0, float(seconds or 0))
            advice = "nobody receives it: is a worker running?"
            yield judged("oldest overdue", formats.span(overdue) or "none", "warn", advice, when=overdue > LATE)


_OF_SERVER: Mapping[str, Check[_Examination]] = {
    "server": _Examination.server,
    "settings": _Examination.settings,
    "replicas": _Examination.replicas,
    "connections": _Examination.connections,
}
_OF_SCHEMA: Mapping[str, Check[_Examination]] = {
    "layout": _Examination.layout,
    "rights": _Examination.rights,
    "oldest transaction": _Examination.transactions,
    "prepared transactions": _Examination.prepared,
    "replication slot": _Examination.slots,
    "autovacuum of tables": _Examination.unvacuumed,
    "tables": _Examination.tables,
    "indexes": _Examination.indexes,
    "plan of a claim": _Examination.plan,
    "locks": _Examination.locks,
    "engine time": _Examination.times,
    "oldest overdue": _Examination.overdue,
}
