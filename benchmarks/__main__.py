"""`python -m benchmarks [name …] [--json FILE]`: tables for people, and all figures as JSON for comparing."""

import argparse
import json
import os
import platform
import sys
from pathlib import Path

from benchmarks import (
    fair_shares,
    imports,
    lateness_at_worst,
    memory,
    memory_schedule,
    postgres,
    postgres_bare,
    postgres_pending,
    postgres_snapshot,
    rabbitmq,
    rabbitmq_idle,
    rabbitmq_late,
    redis,
    redis_bare,
    redis_burst,
    redis_confirm,
    redis_growth,
    redis_huge,
    redis_idle,
    redis_killed,
    redis_late,
    redis_life,
    redis_masters,
    redis_memory,
    redis_migrate,
    redis_ontime,
    redis_part_away,
    redis_slowest,
    sight,
    sqlite,
    sqlite_bare,
    sqlite_idle,
    sqlite_pending,
    timers,
    worker,
)
from benchmarks.measure import HEADER, Figure

ALL = {
    "fair_shares": fair_shares.run,
    "imports": imports.run,
    "lateness_at_worst": lateness_at_worst.run,
    "memory": memory.run,
    "memory_schedule": memory_schedule.run,
    "postgres": postgres.run,
    "postgres_bare": postgres_bare.run,
    "postgres_pending": postgres_pending.run,
    "postgres_snapshot": postgres_snapshot.run,
    "rabbitmq": rabbitmq.run,
    "rabbitmq_idle": rabbitmq_idle.run,
    "rabbitmq_late": rabbitmq_late.run,
    "redis": redis.run,
    "redis_bare": redis_bare.run,
    "redis_burst": redis_burst.run,
    "redis_confirm": redis_confirm.run,
    "redis_growth": redis_growth.run,
    "redis_huge": redis_huge.run,
    "redis_idle": redis_idle.run,
    "redis_killed": redis_killed.run,
    "redis_late": redis_late.run,
    "redis_life": redis_life.run,
    "redis_masters": redis_masters.run,
    "redis_memory": redis_memory.run,
    "redis_migrate": redis_migrate.run,
    "redis_ontime": redis_ontime.run,
    "redis_part_away": redis_part_away.run,
    "redis_slowest": redis_slowest.run,
    "sight": sight.run,
    "sqlite": sqlite.run,
    "sqlite_bare": sqlite_bare.run,
    "sqlite_idle": sqlite_idle.run,
    "sqlite_pending": sqlite_pending.run,
    "timers": timers.run,
    "worker": worker.run,
}


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of: {', '.join(ALL)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(ALL)
    if unknown:
        parser.error(f"there is no benchmark {sorted(unknown)[0]}; there is: {', '.join(ALL)}")
    machine = f"Python {platform.python_version()}, {os.cpu_count()} cores"
    figures: dict[str, list[Figure]] = {}
    for name in arguments.names or ALL:
        print(f"\n== {name} ({machine})\n{HEADER}", flush=True)
        figures[name] = ALL[name]()
        print("\n".join(each.line() for each in figures[name]), flush=True)
    if arguments.json:
        plain = {name: [each._asdict() for each in these] for name, these in figures.items()}
        arguments.json.write_text(json.dumps({"machine": machine, "figures": plain}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
