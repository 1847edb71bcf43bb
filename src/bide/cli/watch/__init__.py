"""`bide watch`: what sleeps, is due and runs, shown anew at intervals. Here: its options and its help."""

import itertools
import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer

from bide.cli.exits import Exit
from bide.cli.options import JsonLines, Section, Topics, parse_duration
from bide.cli.output import echo_json, flush, is_terminal, now_ms
from bide.cli.queues import QueueOptions
from bide.core import formats
from bide.core.times import duration_ms
from bide.errors import ConfigError, EngineError, Unsupported

if TYPE_CHECKING:
    from bide.cli.watch.look import QueueWatch

section: Section = Section("Topics")

INTERVAL = "1s"
SHORTEST = 0.1  # seconds


@section.command(
    "watch",
    help="Show live what sleeps, is due and runs in each topic, and what each worker process has, since when.\n\n"
    "Topics with most due messages come first. The column change has how many stored messages a topic gains or loses a "
    "second. The queue is looked at once an interval, and never for more than a tenth of the time. If it can't be reached, "
    "the command says so and goes on when it is back. Ctrl-C ends it.\n\n"
    "If the output is no terminal, or with --once, it prints the tables once.",
    examples=(
        ("bide watch", "all topics"),
        ("bide watch 'order.*' --interval 5", "some topics, every five seconds"),
        ("bide watch --once", "the tables, once"),
        ("bide watch --json", "one object per interval"),
    ),
    needs="inspect",
)
def watch(
    options: QueueOptions,
    topic: Topics = None,
    *,
    interval: Annotated[str, typer.Option("--interval", metavar="TIME", help="How often to look: 1s, 500ms.")] = INTERVAL,
    once: Annotated[bool, typer.Option("--once", help="Look once, print, and exit.")] = False,
    as_json: JsonLines = False,
) -> int:
    every = duration_ms(parse_duration(interval, "--interval") or INTERVAL) / 1000
    if every < SHORTEST:
        raise typer.BadParameter("The shortest interval is 100ms.", param_hint="--interval")
    can = options.queue().capabilities
    if not can.persistent:
        raise ConfigError(
            "Messages in memory:// are inside the process that sends them, and this is another process: there is nothing to "
            "watch. Call queue.stats() in that process, or give the URL of another queue with --url."
        )
    if not can.inspect:
        from bide.engines.guard.able import others_can

        shown = options.queue().session.setup.source.shown
        raise Unsupported(f"{shown} can't count messages, so there is nothing to watch. {others_can('inspect')}")
    if as_json:
        return _lines(options, topic, every, once=once)
    if once or not is_terminal(sys.stdout):
        from bide.cli.watch.screen import print_look

        with options.open() as queue:
            print_look(_looking(topic).look(queue))
        return Exit.OK
    from bide.cli.watch.screen import show

    return show(options, _looking(topic), every)


def _looking(topic: str | None) -> "QueueWatch":
    from bide.cli.watch.look import QueueWatch

    return QueueWatch(topic)


def _lines(options: QueueOptions, topic: str | None, every: float, *, once: bool) -> int:
    """A line of JSON for each look. One that fails is a line, too."""
    looking = _looking(topic)
    with options.open() as queue:
        for count in itertools.count():
            if count:
                time.sleep(looking.rest(every))
            try:
                look = looking.look(queue)
            except EngineError as error:
                if once:
                    raise
                echo_json({**formats.instant("at", now_ms()), "error": str(error)})
            else:
                echo_json(look.json())
            flush()
            if once:
                break
    return Exit.OK
