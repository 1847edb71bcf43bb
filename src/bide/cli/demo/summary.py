"""The end of the story: the counts as a table or as JSON, and a verdict."""

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bide.cli.demo.tally import Tally, percentile


def as_dict(tally: Tally) -> dict[str, Any]:
    return {
        "seed": tally.seed,
        "seconds": round(tally.seconds, 2),
        "sent": tally.sent,
        "cancelled": tally.cancelled,
        "delivered": tally.delivered,
        "retried": tally.retried,
        "held_by_stopped_worker": tally.held,
        "recovered": tally.recovered,
        "late_acks_refused": tally.refused,
        "lost": tally.lost,
        "left": tally.left,
        "early": tally.early,
        "unexplained": tally.unexplained,
        "lateness_ms": {
            "p50": percentile(tally.lateness, 0.5),
            "p99": percentile(tally.lateness, 0.99),
            "max": percentile(tally.lateness, 1),
        },
        "promises": {promise.name: promise.kept for promise in tally.promises},
        "kept": tally.kept,
    }


def show(tally: Tally, *, plain: bool = False) -> None:
    """Print it; plain: no control codes, whatever the terminal is."""
    if plain:
        console = Console(color_system=None, force_terminal=False, highlight=False, width=100)
    else:
        console = Console(highlight=False)
    console.print()
    console.print(_counts(tally))
    console.print()
    for promise in tally.promises:
        if not promise.kept:
            console.print(f"BROKEN: {promise.name}", style="bold red")
    if tally.kept:
        console.print(f"Every promise was kept: {len(tally.promises)} checks of what was recorded.", style="bold green")
        console.print(f"Another day in the shop: bide demo --seed {tally.seed + 1}", style="bright_black")


def _counts(tally: Tally) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="bright_black")
    back = "" if tally.back_after is None else f"; back {tally.back_after:.1f} s after due"
    late = [percentile(tally.lateness, share) for share in (0.5, 0.99)]
    p50, p99 = ("–" if each is None else str(each) for each in late)
    rows: tuple[tuple[str, object, str], ...] = (
        ("sent", tally.sent, "messages accepted"),
        ("cancelled", tally.cancelled, "by a payment in time"),
        ("delivered", tally.delivered, "and acknowledged"),
        ("retried", tally.retried, "attempts that failed, and came again"),
        ("recovered", tally.recovered, f"of {tally.held} that worker 1 held when it was killed{back}"),
        ("refused", tally.refused, "ack of worker 1, which came too late"),
        ("lateness", f"{p50} / {p99}", f"ms after due, p50 / p99 of {len(tally.lateness)} first deliveries"),
        ("lost", _zero(tally.lost), f"of {tally.sent} accepted; {tally.left} left in the engine"),
        ("early", _zero(tally.early), "before due, by the engine's clock"),
    )
    for name, value, meaning in rows:
        table.add_row(name, value if isinstance(value, Text) else str(value), meaning)
    return table


def _zero(count: int) -> Text:
    return Text(str(count), "bold red" if count else "bold green")
