"""The commands for whole topics: stats, topics, dead, requeue, purge, pause, resume."""

from typing import Annotated

import typer

from bide.cli.commands import options
from bide.cli.commands.options import Delay, Json, JsonLines, Namespace, Topic, Url, UrlFile, examples
from bide.cli.completion import topics as known_topics
from bide.cli.place import Place

family: typer.Typer = typer.Typer()


@family.command(
    "stats",
    help="Count messages by state, and tell how late the oldest is: of a topic, or of all together.",
    epilog=examples(("bide stats", "all topics together"), ("bide stats order.cancel --json", "one, for a program")),
)
def stats(
    topic: Annotated[
        str | None, typer.Argument(metavar="TOPIC", help="The topic; all unless given.", autocompletion=known_topics)
    ] = None,
    *,
    json: Json = False,
    url: Url = None,
    url_file: UrlFile = None,
    namespace: Namespace = None,
) -> None:
    from bide.cli.topics import counts

    raise typer.Exit(counts.stats(Place(url, url_file, namespace), topic, as_json=json))


@family.command(
    "topics",
    help="List the topics, each with its counts, how late its oldest message is, and when the next is due.",
    epilog=examples(("bide topics", ""), ("bide topics --json", "one topic a line")),
)
def topics(*, json: JsonLines = False, url: Url = None, url_file: UrlFile = None, namespace: Namespace = None) -> None:
    from bide.cli.topics import counts

    raise typer.Exit(counts.topics(Place(url, url_file, namespace), as_json=json))


@family.command(
    "dead",
    help="List a topic's dead letters, with the error that each died of.",
    epilog=examples(("bide dead order.pack", "the first 100"), ("bide dead order.pack --limit 5 --json", "one a line")),
)
def dead(
    topic: Topic,
    *,
    limit: Annotated[int, typer.Option("--limit", metavar="N", min=1, help="How many at most.")] = 100,
    json: JsonLines = False,
    url: Url = None,
    url_file: UrlFile = None,
    namespace: Namespace = None,
) -> None:
    from bide.cli.topics.dead import run

    raise typer.Exit(run(Place(url, url_file, namespace), topic, limit, as_json=json))


@family.command(
    "requeue",
    help="Give dead letters a new life, with all their attempts: those named, or --all that are dead now.\n\n"
    "Exit code 0: done. 4: some of those named are no dead letters of this topic; the others were requeued.",
    epilog=examples(
        ("bide requeue order.pack 00000000002a1f3c", "this one, due now"),
        ("bide requeue order.pack --all --delay 10m", "all, in ten minutes"),
    ),
)
def requeue(
    topic: Topic,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="The dead letters' ids.")] = None,
    *,
    whole: Annotated[bool, typer.Option("--all", help="All that are dead now.")] = False,
    delay: Delay = None,
    json: Json = False,
    url: Url = None,
    url_file: UrlFile = None,
    namespace: Namespace = None,
) -> None:
    from bide.cli.output.times import delay_of
    from bide.cli.topics import sweep

    if bool(ids) == whole:
        raise typer.BadParameter("Name the dead letters by their ids, or say --all.", param_hint="ID / --all")
    raise typer.Exit(sweep.requeue(Place(url, url_file, namespace), topic, ids or [], delay_of(delay), as_json=json))


@family.command(
    "purge",
    help="Drop the messages of a topic that are in a state now, for good; leased ones can't be.\n\n"
    "It asks first, with their number. Without a terminal to ask at it needs --yes.",
    epilog=examples(
        ("bide purge order.pack --state dead", "asks"),
        ("bide purge order.pack --state dead --yes", "does not ask"),
    ),
)
def purge(
    topic: Topic,
    *,
    state: Annotated[options.Purgeable, typer.Option("--state", help="Those in this state.")],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    json: Json = False,
    url: Url = None,
    url_file: UrlFile = None,
    namespace: Namespace = None,
) -> None:
    from bide.cli.topics import sweep

    raise typer.Exit(sweep.purge(Place(url, url_file, namespace), topic, state.value, yes=yes, as_json=json))


@family.command(
    "pause",
    help="Hand out none of a topic's messages until it is resumed; what is being worked on goes on.",
    epilog=examples(("bide pause order.pack", "")),
)
def pause(topic: Topic, *, json: Json = False, url: Url = None, url_file: UrlFile = None, namespace: Namespace = None) -> None:
    from bide.cli.topics.pause import run

    raise typer.Exit(run(Place(url, url_file, namespace), topic, paused=True, as_json=json))


@family.command(
    "resume",
    help="Hand out a topic's messages again.",
    epilog=examples(("bide resume order.pack", "")),
)
def resume(topic: Topic, *, json: Json = False, url: Url = None, url_file: UrlFile = None, namespace: Namespace = None) -> None:
    from bide.cli.topics.pause import run

    raise typer.Exit(run(Place(url, url_file, namespace), topic, paused=False, as_json=json))
