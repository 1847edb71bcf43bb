"""What `bide worker` says first: where it works, with how many hands, and what for."""

import bide
from bide.cli.output.out import tell
from bide.cli.worker.wanted import Wanted
from bide.worker import Worker


def show(wanted: Wanted, worker: Worker) -> None:
    setup = worker.queue.session.setup
    plan, served = worker.plan, worker.tasks()
    processes = "this process" if wanted.processes is None else f"{wanted.processes} processes"
    tell(f"bide {bide.__version__} worker")
    tell(f"  engine   {setup.source.shown}, namespace {setup.source.namespace}")
    tell(
        f"  places   {processes}, {plan.concurrency} handlers at once in each, of which {plan.threads} in threads; "
        f"lease {plan.lease_ms / 1000:g} s, grace {plan.grace:g} s"
    )
    widest = max(map(len, served))
    for topic, task in sorted(served.items()):
        kind = "" if task.is_async else " (in a thread)"
        kept = f", {plan.slots[topic]} places kept" if topic in plan.slots else ""
        tell(f"  {topic:<{widest}}  →  {task.name}{kind}{kept}")
