"""A look at a queue, printed once: for pipes, files and --once."""

from bide.cli.output import echo, note
from bide.cli.table import Table
from bide.cli.watch import cells
from bide.cli.watch.looking import Look


def print_look(look: Look, now: int) -> None:
    if not look.topics:
        note("There are no topics.")
        return
    headings = [heading for heading in cells.TOPICS if heading != "change"]  # which takes two looks
    place = cells.TOPICS.index("change")
    topics = Table(*headings, right=cells.RIGHT)
    rows = [(*row[:place], *row[place + 1 :]) for row in cells.topic_rows(look)]
    topics.add(rows, [cells.style(counts) for counts in look.topics.values()])
    if look.running:
        echo("")
        workers = Table(*cells.WORKERS, right=cells.RIGHT, short=("of",))
        workers.add(cells.worker_rows(look))
    if look.unread:
        note(f"{look.unread:,} more run in workers that were not asked for.")
