"""What an operator should know of a database: rights, layout, bloat, long transactions, the plan of a claim."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

import psycopg

from bide.core import formats
from bide.engines.base import Finding
from bide.engines.postgres.failures import translated
from bide.engines.postgres.layout import OURS, named
from bide.engines.postgres.location import Address
from bide.engines.postgres.sync.connections import Connections
from bide.errors import ConfigError, EngineError

OLD_TRANSACTION = 60.0  # seconds: what ended since then can't be cleaned up
MANY_DEAD = 0.5  # of a table's rows
FEW = 10_000  # dead rows that don't matter
LATE = 60.0  # seconds overdue
CLOCKS_APART = 10.0  # seconds
OLDEST_VERSION = 150_000
PATIENCE = 60.0  # seconds for an answer; a question about 100,000 topics takes some
NEARLY_ALL = 0.9  # of the connections that the server takes

QUESTIONS: Mapping[str, str] = {
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
    "pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn) > 1073741824)",
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
    "from bide.topics() as t where not exists (select 1 from bide.topic p where p.name = t and p.paused)",
}
PLAN = """
explain (format text) select m.id, m.due from bide.message m
where m.topic = 'x' and m.level = 1 and m.until is null and m.due between -1 and 1 order by m.due, m.id limit 100
"""
Level = Literal["ok", "warn", "bad"]


def examine(address: Address) -> list[Finding]:
    """Asks the server. Nothing is made there."""
    findings = [Finding("database", address.shown)]
    connections = Connections(address)
    try:
        connection = connections.connect()
        connection.limit = PATIENCE
    except (psycopg.Error, EngineError) as error:
        told = translated(error, address.shown) if isinstance(error, psycopg.Error) else error
        advice = "change the URL, or the user's rights on the server" if isinstance(told, ConfigError) else "start the server"
        return [*findings, Finding("state", str(told), "bad", advice)]
    try:
        return [*findings, *_Examination(connection, address).findings()]
    finally:
        connection.close()


class _Examination:
    def __init__(self, connection: psycopg.Connection[Any], address: Address) -> None:
        self._connection = connection
        self._schema = address.schema
        self._migrate = address.migrate

    def findings(self) -> Iterator[Finding]:
        yield from self._server()
        if not self._rows("there", f"select 1 from pg_namespace where nspname = '{self._schema}'"):
            yield self._nothing_yet()
            return
        for part in (
            self._layout,
            self._rights,
            self._transactions,
            self._tables,
            self._indexes,
            self._plan,
            self._locks,
            self._times,
        ):
            yield from part()

    def _nothing_yet(self) -> Finding:
        value = f"there is no schema {self._schema} yet"
        if self._migrate and (True,) in self._rows("may create"):
            return Finding("layout", f"{value}: it is made on first use")
        advice = "run `bide migrate` as a user who may create it, and grant what the page PostgreSQL lists under Its tables"
        return Finding("layout", value, "bad", advice)

    def _rows(self, name: str, text: str | None = None) -> list[tuple[Any, ...]]:
        """The answer; empty where this user may not ask, or the table is missing. After one that never came there is none."""
        asked = named(text or QUESTIONS[name], self._schema).replace("{schema}", self._schema)
        try:
            with self._connection.transaction():  # behind a pooler, nothing may be set for longer
                self._connection.execute(b"set local search_path = pg_catalog, pg_temp; set local enable_seqscan = off")
                return self._connection.execute(asked.encode()).fetchall()
        except (psycopg.Error, TimeoutError):
            return []

    def _server(self) -> Iterator[Finding]:
        for version, number, standby in self._rows("server"):
            yield _judged("server", f"PostgreSQL {version}", "bad", "15 or newer is needed", when=number < OLDEST_VERSION)
            if standby:
                yield Finding("role", "a standby, which takes no changes", "bad", "name the primary in the URL")
        for commit, fsync, pages, vacuum in self._rows("settings"):
            advice = "a crash of the server loses what was accepted in its last moments: set synchronous_commit = on"
            yield _judged("synchronous_commit", commit, "warn", advice, when=commit == "off")
            advice = "a crash of the machine can destroy the database: set fsync and full_page_writes on"
            yield _judged("fsync", fsync, "bad", advice, when="off" in (fsync, pages))
            advice = "finished messages are never cleaned up: set autovacuum = on"
            yield _judged("autovacuum", vacuum, "bad", advice, when=vacuum == "off")
        for count, synchronous, lag, awaited, seen in self._rows("replicas"):
            what = f"{count}, {synchronous} of them synchronous, {lag:.1f} s behind at most"
            if awaited and seen and not synchronous:
                advice = "each commit waits for one: start the standby, or change synchronous_standby_names"
                yield Finding("replicas", f"none that is synchronous, of {count}", "bad", advice)
            elif count:
                advice = "after a failover to it, what it has not replayed is late or lost: see pg_stat_replication"
                yield _judged("replicas", what, "warn", advice, when=lag > LATE)
        for count, most in self._rows("connections"):
            advice = "soon nobody gets in: raise max_connections, or use a pooler"
            yield _judged("connections", f"{count} of {most}", "warn", advice, when=count > NEARLY_ALL * most)

    def _layout(self) -> Iterator[Finding]:
        for number, finished in self._rows("layout"):
            advice = "run `bide migrate`" if number < OURS.number else "update bide here"
            wrong = number < OURS.number or finished > OURS.number
            yield _judged("layout", f"{number} of {OURS.number}", "bad", advice, when=wrong)

    def _rights(self) -> Iterator[Finding]:
        for usage, lacking in self._rows("rights"):
            advice = "grant them: the page PostgreSQL of the documentation has the statements, under Its tables"
            what = "all that a worker needs" if usage and not lacking else f"lacking: {lacking or 'usage of the schema'}"
            yield _judged("rights", what, "bad", advice, when=not usage or bool(lacking))

    def _transactions(self) -> Iterator[Finding]:
        oldest = self._rows("transactions")
        whose = "" if (True,) in self._rows("sees all") else " of this user; to see all, grant it the role pg_read_all_stats"
        for pid, user, program, state, seconds in oldest:
            what = f"{formats.span(seconds)}: pid {pid}, user {user}, program {program or 'unnamed'}, {state}"
            advice = "messages that ended since it began can't be cleaned up, and slow claims down: commit it or end it"
            yield _judged("oldest transaction", what, "warn", advice, when=seconds > OLD_TRANSACTION)
        if not oldest:
            yield Finding("oldest transaction", f"none older than a second{whose}")
        for count, seconds in self._rows("prepared"):
            advice = "a forgotten prepared transaction keeps rows from being cleaned up: see pg_prepared_xacts"
            if count:
                what = f"{count}, the oldest for {formats.span(seconds) or '0 s'}"
                yield _judged("prepared transactions", what, "warn", advice, when=seconds > OLD_TRANSACTION)
        for (name,) in self._rows("slots"):
            advice = (
                "nobody reads from it, and for it the server keeps rows or its log: drop it with pg_drop_replication_slot()"
            )
            yield Finding("replication slot", name, "warn", advice)

    def _tables(self) -> Iterator[Finding]:
        for (name,) in self._rows("unvacuumed"):
            advice = f"finished messages are never cleaned up: alter table … reset (autovacuum_enabled) on {name}"
            yield Finding(f"autovacuum of {name}", "off", "bad", advice)
        for name, live, dead, size, indexes, vacuumed in self._rows("tables"):
            if name not in ("message", "dead", "answer"):
                continue
            when = "never vacuumed" if vacuumed is None else f"vacuumed {formats.span(vacuumed) or '0 s'} ago"
            rows = f"{formats.plural(live, 'row')}, {dead:,} dead"
            what = f"{rows}, {formats.size(size)} of which {formats.size(indexes)} are indexes; {when}"
            advice = "autovacuum can't keep up, or an old transaction hinders it"
            yield _judged(f"table {name}", what, "warn", advice, when=dead > FEW and dead > MANY_DEAD * (live + dead))

    def _indexes(self) -> Iterator[Finding]:
        there = {name for (name,) in self._rows("indexes")}
        for name, statement in OURS.indexes(self._schema).items():
            if there and name not in there:
                yield Finding(f"index {name}", "missing or broken", "bad", f"drop it if it is there, and run: {statement}")

    def _plan(self) -> Iterator[Finding]:
        plan = "\n".join(line for (line,) in self._rows("plan", PLAN))
        if plan:
            good = "message_due" in plan and "Sort" not in plan
            advice = "the index message_due is missing, broken or not used: run reindex and analyze on the table message"
            what = "a walk along the index by due time" if good else plan.splitlines()[0].strip()
            yield _judged("plan of a claim", what, "bad", advice, when=not good)

    def _locks(self) -> Iterator[Finding]:
        for count, seconds in self._rows("locks"):
            advice = "somebody holds rows of messages in a long transaction: see pg_locks and pg_blocking_pids()"
            what = f"{count} waiting, the longest for {seconds:.0f} s" if count else "nobody waits"
            yield _judged("locks", what, "warn", advice, when=count > 0 and seconds > 5)

    def _times(self) -> Iterator[Finding]:
        for clock, engine in self._rows("times"):
            ahead = engine - clock
            advice = "the server's clock was set back: bide's time runs at half speed until the two agree"
            what = "as the server's clock" if ahead < 1 else f"{formats.span(ahead)} ahead of the server's clock"
            yield _judged("engine time", what, "warn", advice, when=ahead > CLOCKS_APART)
        found = self._rows("overdue")
        if not found:
            yield Finding("oldest overdue", "not known: the question took too long, or this user may not ask it")
        for (seconds,) in found:
            overdue = max(0.0, float(seconds or 0))
            advice = "nobody receives it: is a worker running?"
            yield _judged("oldest overdue", formats.span(overdue) or "none", "warn", advice, when=overdue > LATE)


def _judged(name: str, value: str, level: Level, advice: str, *, when: bool) -> Finding:
    return Finding(name, value, level, advice) if when else Finding(name, value)
