"""`python -m benchmarks.recipes` prints the lines of each recipe, and with --write puts them into the docs.

`python -m benchmarks.recipes --run celery dramatiq` runs the recipes of the others on a Redis of their own, and says which
of them don't do what bide's do. It makes their environment in build/peers.
"""

import argparse
import os
import sys
import tempfile
from pathlib import Path

from benchmarks.recipes.environment import install
from benchmarks.recipes.lines import PAGE, table, written
from benchmarks.recipes.running import told
from benchmarks.recipes.stories import OUTBOX, STORIES
from tests.servers.postgres import PostgresServer
from tests.servers.redis import RedisServer


def run(peer: str, names: list[str]) -> list[str]:
    """Those that don't do what they should."""
    programs = install()
    failed = []
    for name in names or [*STORIES, "outbox"]:
        module = f"benchmarks.recipes.with_{peer}.{name}"
        with tempfile.TemporaryDirectory() as folder, RedisServer() as redis:
            settings = {"REDIS_URL": redis.url, "RECIPES_DB": f"{folder}/recipes.db", "SWEEP_EVERY": "0.3s"}
            story = STORIES.get(name, OUTBOX)
            log = Path(folder) / "worker.log"
            worker = [str(programs / peer), *arguments(peer, module, folder)]
            if peer == "dramatiq":
                worker = ["sh", "-c", 'exec "$@" 2>&1', "sh", *worker]
            sender = [str(programs / "python"), "-m", module]
            if name == "outbox":
                with PostgresServer() as server:
                    settings["SHOP_URL"] = server.url
                    lines, sent = told(story, worker, sender, settings, log)
            else:
                lines, sent = told(story, worker, sender, settings, log)
            lines = [line for line in lines if own(peer, line)]
            if story.missing(lines) or len(lines) != len(story.worker) or sent != story.sender:
                failed.append(name)
                print(f"{peer}, {name}: {lines} {sent}\n{log.read_text()}", file=sys.stderr)
            else:
                print(f"{peer}, {name}: as it should be", flush=True)
    return failed


def own(peer: str, line: str) -> bool:
    """Whether the recipe has printed it, and not the system."""
    if peer == "dramatiq":  # prints what its processes print where it logs
        return not line.startswith(("[", "Traceback", " ", "dramatiq."))
    return line != "" and not line.startswith("worker: ")


def arguments(peer: str, module: str, folder: str) -> list[str]:
    """Of its worker."""
    if peer == "dramatiq":
        return [module, "--processes", "1", "--threads", "4"]
    quietly = ["--loglevel", "warning", "--without-gossip", "--without-mingle"]
    return [
        "--quiet",
        "--app",
        f"{module}:app",
        "worker",
        "--beat",
        "--schedule",
        f"{folder}/beat",
        "--concurrency",
        "2",
        *quietly,
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="write the table into docs/recipes/index.md")
    parser.add_argument("--run", nargs="+", choices=["celery", "dramatiq"], help="run the recipes of these")
    parser.add_argument("--only", nargs="+", default=[], help="these recipes only")
    asked = parser.parse_args()
    if asked.run:
        os.environ["PYTHONPATH"] = str(Path.cwd())
        return len([name for peer in asked.run for name in run(peer, asked.only)])
    if asked.write:
        PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(table())
    return 0


if __name__ == "__main__":
    sys.exit(main())
