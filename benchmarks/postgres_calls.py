"""What a message takes of PostgreSQL, through bide and through a loop by hand, as the server and libpq count it.

`python -m benchmarks.postgres_calls` prints for each pair of benchmarks/postgres_bare.py, a message: round trips, statements
(with those in functions), µs that the server executes them (counted so closely, they take longer), and bytes of the log (WAL).
"""

import gc
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

import psycopg

from benchmarks.postgres_bare import PAIRS, Pair, ready
from benchmarks.postgres_meter import Meter
from tests.servers.postgres import PostgresServer

TAKEN = """
select coalesce(sum(calls), 0), coalesce(sum(total_exec_time) filter (where toplevel), 0), coalesce(sum(wal_bytes), 0)
from pg_stat_statements s join pg_database d on d.oid = s.dbid where d.datname <> 'postgres'
"""
ASKED = re.compile(r"\tF\t\d+\t(?:Sync|Query)\b")
HEADER = f"{'a message':<34} {'round trips':>12} {'statements':>12} {'server µs':>12} {'bytes of WAL':>13}"


class Taken(NamedTuple):
    """By so many messages together."""

    trips: int
    statements: float
    executed: float  # ms
    log: float  # bytes

    def line(self, name: str, many: int) -> str:
        each = (self.trips, self.statements, 1_000 * self.executed, self.log)
        return f"{name:<34} {each[0] / many:>12.3f} {each[1] / many:>12.3f} {each[2] / many:>12.1f} {each[3] / many:>13.0f}"


def measured(server: PostgresServer, work: Callable[[], object]) -> Taken:
    server.ask("select pg_stat_statements_reset()")
    with _traced() as trace:
        work()
        trips = sum(len(ASKED.findall(file.read_text(errors="replace"))) for file in trace)
    [(statements, executed, log)] = server.ask(TAKEN)
    return Taken(trips, float(statements), float(executed), float(log))


@contextmanager
def _traced() -> Iterator[list[Path]]:
    """What libpq writes of all connections of this process, a file each."""
    open_ones = [each for each in gc.get_objects() if isinstance(each, psycopg.Connection) and not each.closed]
    with tempfile.TemporaryDirectory() as folder:
        files: list[IO[Any]] = [(Path(folder) / str(number)).open("w") for number in range(len(open_ones))]
        for each, file in zip(open_ones, files, strict=True):
            each.pgconn.trace(file.fileno())
        yield [Path(file.name) for file in files]
        for each, file in zip(open_ones, files, strict=True):
            each.pgconn.untrace()
            file.close()


def main() -> None:
    print(HEADER)
    settings: dict[str, Any] = {"shared_preload_libraries": "pg_stat_statements", "pg_stat_statements.track": "all"}
    with PostgresServer(**settings) as server:
        server.ask("create extension pg_stat_statements")
        meter = Meter(server)
        for pair in PAIRS:
            print("\n".join(_lines(server, meter, pair)), flush=True)


def _lines(server: PostgresServer, meter: Meter, pair: Pair) -> Iterator[str]:
    with ready(meter, pair) as (queue, hand):
        yield measured(server, lambda: pair.ours(queue, pair.many)).line(pair.name, pair.many)
        yield measured(server, lambda: pair.by_hand(hand, pair.many)).line("… by hand", pair.many)


if __name__ == "__main__":
    main()
