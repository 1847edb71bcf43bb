"""The commands for messages: send, list, show, cancel, reschedule."""

from typing import Annotated

import typer

from bide import types
from bide.cli.commands import options
from bide.cli.commands.options import (
    At,
    Delay,
    IfExists,
    Json,
    JsonLines,
    Key,
    Named,
    Namespace,
    Priority,
    Topic,
    Url,
    UrlFile,
    examples,
)
from bide.cli.place import Place

family: typer.Typer = typer.Typer()

_ENDS = (
    "Exit code 0: {done}. 3: RUNNING, a worker has it, and goes on. 4: GONE, it has ended or never was. "
    "6: DEAD, it is a dead letter."
)


@family.command(
    "send",
    help="Send a message, or one a line of a file: due now, after a delay, or at an instant.\n\n"
    "The body is JSON; without one it is null. A file is checked as a whole before its first line is sent. "
    "Lines go in batches of 1,000 and at the end of the input; each batch is sent whole or not at all.",
    epilog=examples(
        ("bide send order.cancel '{\"order\": 42}' --delay 15m --key order:42", ""),
        ("bide send order.remind --at 2030-01-15T09:00:00+01:00", ""),
        ("bide send mail --text 'Hello there' --priority low", ""),
        ("bide send cart.forget --from carts.jsonl --delay 1h", "one body a line"),
        ("jq -c '.[]' orders.json | bide send order.pack -", "from a pipe"),
    ),
)
def send(
    topic: Topic,
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help="The body as JSON. -: one a line from standard input.")
    ] = None,
    *,
    text: Annotated[bool, typer.Option("--text", help="BODY, or each line, is text as it stands, not JSON.")] = False,
    delay: Delay = None,
    at: At = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="Your name for it while it has not ended.")] = None,
    if_exists: Annotated[IfExists, typer.Option("--if-exists", help="What to do when a message has the key.")] = IfExists.KEEP,
    priority: Annotated[Priority, typer.Option("--priority", help="Among messages that are due.")] = Priority.NORMAL,
    expires_in: Annotated[
        str | None, typer.Option("--expires-in", metavar="TIME", help="Dropped if nobody took it so long after it was due.")
    ] = None,
    max_attempts: Annotated[
        int | None, typer.Option("--max-attempts", metavar="N", min=1, max=1_000, help="Attempts; 3 unless given.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", metavar="NAME=VALUE", help="Text beside the body; may be repeated.")
    ] = None,
    operation: Annotated[
        str | None,
        typer.Option("--operation", metavar="NAME", help="Sending again under this name within 10 minutes adds nothing."),
    ] = None,
    source: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="Send each line of FILE; - is standard input.")
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="The same as --from -")] = False,
    json: JsonLines = False,
    url: Url = None,
    url_file: UrlFile = None,
    namespace: Namespace = None,
) -> None:
    from bide.cli.messages import draft, lines
    from bide.cli.messages import send as one

    place = Place(url, url_file, namespace)
    many = draft.source_of(body, source, stdin=stdin)
    message = draft.message(
        delay=delay,
        at=at,
        key=key,
        if_exists=if_exists.value,
        priority=priority.value,
        expires_in=expires_in,
        max_attempts=max_attempts,
        headers=header or [],
    )
    if many is None:
        message = draft.with_body(message, body, text=text)
        raise typer.Exit(one.run(place, topic, message, operation, as_json=json))
    draft.refuse_key(message)
    raise typer.Exit(lines.run(place, topic, many, message, operation, text=text, as_json=json))


@family.command(
    "list",
    help="List the messages of a topic: pending ones by due time, then leased, then dead.\n\n"
    "On a terminal bodies are cut to its width; anywhere else they are whole.",
    epilog=examples(
        ("bide list order.cancel", "the first 100"),
        ("bide list order.cancel --state dead --limit 10", ""),
        ("bide list order.cancel --all --json", "one message a line"),
    ),
)
def list_(
    topic: Topic,
    *,
    state: Annotated[options.State | None, typer.Option("--state", help="Only those in this state.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", metavar="N", min=1, help="How many at most; 100 unless given.")
    ] = None,
    after: Annotated[str | None, typer.Option("--after", metavar="MARK", help="Go on where a list ended, by its mark.")] = None,
    whole: Annotated[bool, typer.Option("--all", help="All of them, page by page.")] = False,
    json: JsonLines = False,
    url: Url = None,
    url_file: UrlFile = None,
    namespace: Namespace = None,
) -> None:
    from bide.cli.messages.listing import run

    if whole and limit is not None:
        raise typer.BadParameter("Give one of them: all, or so many.", param_hint="--all / --limit")
    wanted: types.State | None = None if state is None else state.value
    raise typer.Exit(run(Place(url, url_file, namespace), topic, wanted, limit, after, whole=whole, as_json=json))


@family.command(
    "show",
    help="Show all that is stored about a message.\n\nExit code 0: here it is. 1: it is gone.",
    epilog=examples(
        ("bide show 00000000002a1f3c", "by its id"),
        ("bide show order.cancel --key order:42", "by its topic and key"),
    ),
)
def show(
    message: Named,
    *,
    key: Key = None,
    json: Json = False,
    url: Url = None,
    url_file: UrlFile = None,
    namespace: Namespace = None,
) -> None:
    from bide.cli.messages.show import run
    from bide.cli.messages.which import Which

    raise typer.Exit(run(Place(url, url_file, namespace), Which(message, key), as_json=json))


@family.command(
    "cancel",
    help="End a message that is pending: it will never be delivered.\n\n" + _ENDS.format(done="CANCELLED"),
    epilog=examples(
        ("bide cancel 00000000002a1f3c", "by its id"),
        ("bide cancel order.cancel --key order:42", "by its topic and key"),
    ),
)
def cancel(
    message: Named,
    *,
    key: Key = None,
    json: Json = False,
    url: Url = None,
    url_file: UrlFile = None,
    namespace: Namespace = None,
) -> None:
    from bide.cli.messages import change
    from bide.cli.messages.which import Which

    raise typer.Exit(change.cancel(Place(url, url_file, namespace), Which(message, key), as_json=json))


@family.command(
    "reschedule",
    help="Give a message that is pending a new time: it is due then, and only then.\n\n" + _ENDS.format(done="MOVED"),
    epilog=examples(
        ("bide reschedule 00000000002a1f3c --delay 20m", "from now"),
        ("bide reschedule order.cancel --key order:42 --at 2030-01-15T09:00:00Z", ""),
    ),
)
def reschedule(
    message: Named,
    *,
    key: Key = None,
    delay: Delay = None,
    at: At = None,
    json: Json = False,
    url: Url = None,
    url_file: UrlFile = None,
    namespace: Namespace = None,
) -> None:
    from bide.cli.messages import change
    from bide.cli.messages.which import Which
    from bide.cli.output.times import one_time

    if delay is None and at is None:
        raise typer.BadParameter("Say the new time by one of them.", param_hint="--delay / --at")
    wait, instant = one_time(delay, at)
    raise typer.Exit(change.reschedule(Place(url, url_file, namespace), Which(message, key), wait, instant, as_json=json))
