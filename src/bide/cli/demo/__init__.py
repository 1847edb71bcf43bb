"""`bide demo`: twelve seconds of an order shop. Here: its options and its help."""

import signal
from typing import Annotated

import typer

from bide.cli.exits import Exit
from bide.cli.options import Section
from bide.cli.output import note

section: Section = Section("System")


@section.command(
    "demo",
    help="See bide at work: an order shop on a temporary SQLite file, for about twelve seconds.\n\n"
    "A delayed message cancels each order that is not paid in time. Most orders are paid, one too late, and one gets more "
    "time. One mail fails twice, and a worker process is killed while it packs parcels.\n\n"
    "At the end, bide checks what became of every message. Exit code 0: all promises were kept. 1: one was broken.",
    examples=(
        ("bide demo", "watch it live"),
        ("bide demo --seed 7", "another day in the shop"),
        ("bide demo --json", "only the summary, for a script"),
    ),
)
def demo(
    seed: Annotated[int, typer.Option(help="Random seed of the day in the shop. The same seed plans the same day.")] = 42,
    as_json: Annotated[bool, typer.Option("--json", help="Print only the summary, as JSON.")] = False,
) -> int:
    from bide.cli.demo.run import run

    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `bide demo | head` ends when head does
    try:
        return run(seed, as_json=as_json)
    except KeyboardInterrupt:
        note("Stopped.")
        return Exit.STOPPED
