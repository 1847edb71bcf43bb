"""The verdict on a day, from the histories of the shop's processes: what was promised, as a table or as JSON."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bide.cli.demo.plan import WORKER_1
from bide.prove import Report, check, read


class Verdict(NamedTuple):
    report: Report
    held: int  # messages that worker 1 held when it was killed
    back: Mapping[str, int]  # of them, those that another worker got later: ms after due
    seed: int
    seconds: float

    @property
    def promises(self) -> dict[str, bool]:
        """Whether each was kept. A promise that the day did not put to the test was not kept."""
        counts, repeats = self.report.counts, self.report.duplicates
        ended_once = 0 < counts["accepted"] == counts["acked"] + counts["cancelled"]
        return {
            "every accepted message ended exactly once": ended_once
            and not self.broken("no loss", "nothing unexpected", "final", "idempotent"),
            "nothing is left in the engine": self.report.looked and not counts["left"],
            "none was handed out early": counts["delivered"] > 0 and not self.broken("never early"),
            "what was cancelled was never delivered": counts["cancelled"] > 0 and not self.broken("final"),
            "what failed was tried again until it was done": repeats.get("retry", 0) > 0 and ended_once,
            "what a stopped worker held came back": 0 < self.held == len(self.back),
            "its late ack was refused": counts["refused"] > 0 and not self.broken("fencing"),
            "every repeated delivery has a reason": not self.broken("duplicates explained"),
        }

    @property
    def kept(self) -> bool:
        return self.report.valid is True and all(self.promises.values())

    def broken(self, *invariants: str) -> int:
        """How many times the history checker has found one of these broken."""
        return sum(len(self.report.violations.get(each, ())) for each in invariants)


def judge(folder: Path, seed: int = 0, seconds: float = 0.0) -> Verdict:
    """Judge the histories in this folder."""
    paths = sorted(folder.glob("*.jsonl"))
    deliveries = [each for path in paths for each in read(path) if each.op == "deliver"]
    held = {each.id: each.token or "" for each in deliveries if each.process == WORKER_1}
    back = {
        each.id or "": (each.now or 0) - (each.due or 0)
        for each in deliveries
        if each.process != WORKER_1 and each.id in held and (each.token or "") > held[each.id]
    }
    return Verdict(check(paths), len(held), back, seed, seconds)


def as_dict(verdict: Verdict) -> dict[str, Any]:
    counts, repeats = verdict.report.counts, verdict.report.duplicates
    return {
        "seed": verdict.seed,
        "seconds": round(verdict.seconds, 2),
        "sent": counts["accepted"],
        "cancelled": counts["cancelled"],
        "delivered": counts["acked"],
        "retried": repeats.get("retry", 0),
        "held_by_stopped_worker": verdict.held,
        "recovered": len(verdict.back),
        "late_acks_refused": counts["refused"],
        "lost": verdict.broken("no loss"),
        "left": counts["left"],
        "early": verdict.broken("never early"),
        "unexplained": repeats.get("unexplained", 0),
        "lateness_ms": {name: verdict.report.lateness.get(name) for name in ("p50", "p99", "max")},
        "promises": verdict.promises,
        "kept": verdict.kept,
    }


def show(verdict: Verdict, *, plain: bool = False) -> None:
    """Print it; plain: no control codes, whatever the terminal is."""
    console = (
        Console(color_system=None, force_terminal=False, highlight=False, width=100) if plain else Console(highlight=False)
    )
    console.print()
    console.print(_counts(verdict))
    console.print()
    for name, kept in verdict.promises.items():
        if not kept:
            console.print(f"BROKEN: {name}", style="bold red")
    for reason in (*verdict.report.doubts, *(f"{each[0].id}: {each[0].what}" for each in verdict.report.violations.values())):
        console.print(f"  {reason}", markup=False)
    if verdict.kept:
        console.print(f"Every promise was kept: {len(verdict.promises)} checks of what was recorded.", style="bold green")
        console.print(f"Another day in the shop: bide demo --seed {verdict.seed + 1}", style="bright_black")


def _counts(verdict: Verdict) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="bold")
    table.add_column(justify="right", no_wrap=True)
    table.add_column(style="bright_black")
    told, late = as_dict(verdict), verdict.report.lateness
    firsts = verdict.report.counts["delivered"] - sum(verdict.report.duplicates.values())
    back = f"; back {max(verdict.back.values()) / 1000:.1f} s after due" if verdict.back else ""
    rows: tuple[tuple[str, object, str], ...] = (
        ("sent", told["sent"], "messages accepted"),
        ("cancelled", told["cancelled"], "by a payment in time"),
        ("delivered", told["delivered"], "and acknowledged"),
        ("retried", told["retried"], "attempts that failed, and came again"),
        ("recovered", told["recovered"], f"of {verdict.held} that worker 1 held when it was killed{back}"),
        ("refused", told["late_acks_refused"], "ack of worker 1, which came too late"),
        (
            "lateness",
            f"{late.get('p50', '–')} / {late.get('p99', '–')}",
            f"ms after due, p50 / p99 of {firsts} first deliveries",
        ),
        ("lost", _zero(told["lost"]), f"of {told['sent']} accepted; {told['left']} left in the engine"),
        ("early", _zero(told["early"]), "before due, by the engine's clock"),
    )
    for name, value, meaning in rows:
        table.add_row(name, value if isinstance(value, Text) else str(value), meaning)
    return table


def _zero(count: int) -> Text:
    return Text(str(count), "bold red" if count else "bold green")
