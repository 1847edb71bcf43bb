"""What every command of `bide adopt` does with its source, and what it tells at the end."""

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

from bide.cli.adopt.options import Run
from bide.cli.adopt.run import NOTHING, carry_out, has_seen_nothing, left_there, look
from bide.cli.exits import Exit, WrongUsage
from bide.cli.output import echo, echo_json, note
from bide.cli.queues import QueueOptions
from bide.core.formats import plural
from bide.errors import MissingExtra

if TYPE_CHECKING:
    from bide.adopt.adoption import Adoption
    from bide.adopt.source import AdoptSource
    from bide.queue import Queue

_EXTRAS = {"redis": "redis", "psycopg": "postgres", "aiormq": "rabbitmq", "pamqp": "rabbitmq"}  # by package


def adopt(options: QueueOptions, opened: "Callable[[int], AdoptSource]", run: Run, *, unkeyed: str | None = None) -> int:
    """Run an adoption. `opened` makes the source, for a queue that can keep a message for so many milliseconds at most.

    `unkeyed`: the messages have keys; what to do if the queue has none.
    """
    queue = options.queue() if run.dry_run else options.open(create=True)
    if unkeyed is not None and not queue.capabilities.keys:
        raise WrongUsage(f"{queue.session.setup.source.shown} has no keys: {unkeyed}")
    if run.dry_run:  # the queue need not be there yet
        with closing(_made(opened, queue.capabilities.max_delay)) as source:
            return look(source, queue, as_json=run.as_json)
    with queue, closing(_made(opened, queue.capabilities.max_delay)) as source:
        return _move(source, queue, run)


def _made(opened: "Callable[[int], AdoptSource]", longest: int) -> "AdoptSource":
    """Raises MissingExtra if the driver of the source is not installed."""
    try:
        return opened(longest)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in _EXTRAS:
            raise
        raise MissingExtra(f'The source needs the package {package}: pip install "bide[{_EXTRAS[package]}]"') from missing


def _move(source: "AdoptSource", queue: "Queue", run: Run) -> int:
    from bide.adopt.adoption import Adoption

    adoption = Adoption(source, queue, doubt=run.doubt)
    code = carry_out(adoption, source, "adopting", follow=run.follow, as_json=run.as_json)
    _tell(adoption, source, as_json=run.as_json)
    if code == Exit.OK and not run.as_json and has_seen_nothing(adoption):
        count = source.count()
        note(f"None of the {count:,} there was taken: they are due within a minute, or of other queues." if count else NOTHING)
    return code or (Exit.FAILED if adoption.refused else Exit.OK)


def _tell(adoption: "Adoption", source: "AdoptSource", *, as_json: bool) -> None:
    if as_json:
        echo_json({"adopted": adoption.adopted, **adoption.counts})
        return
    topics = f" to {plural(len(adoption.topics), 'topic')} of" if adoption.topics else " to"
    echo(f"Adopted {plural(adoption.adopted, 'message')} of {source.shown}{topics} {adoption.shown}.")
    if adoption.resumed:
        echo(f"{adoption.resumed:,} of them had been taken by a run that was stopped.")
    if adoption.perhaps_twice:
        echo("The queue remembers no operations: if that run had sent them already, they come twice.")
    if adoption.given_back:
        echo(f"Given back to the source: {adoption.given_back:,}. Run the command again to adopt them.")
    if adoption.forgotten:
        echo(f"Forgotten at the source, as the queue has them: {adoption.forgotten:,}.")
    if adoption.gone:
        echo(f"Taken by others meanwhile: {adoption.gone:,}.")
    for reason, number in sorted(adoption.refused.items()):
        echo(left_there(number, reason, adoption.examples[reason]))
    if adoption.in_hand and not adoption.asked:
        echo(
            f"{adoption.in_hand:,} are taken and not finished. Run the command again within nine minutes: it goes on with them."
        )
