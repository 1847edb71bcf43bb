"""The commands about bide itself: demo, doctor."""

import signal
from typing import Annotated

import typer

from bide.cli.commands.options import Json, Namespace, Url, UrlFile, examples
from bide.cli.exits import Exit
from bide.cli.place import Place

family: typer.Typer = typer.Typer()


@family.command(
    "demo",
    help="See bide at work: an order shop on a temporary SQLite file, for about twelve seconds.\n\n"
    "Orders must be paid in time, or a delayed message cancels them. Most are paid, one too late, and one gets more time. "
    "A mail fails twice, and a worker process is killed with parcels in its hands.\n\n"
    "In the end every message is accounted for. Exit code 0: every promise was kept. 1: one was broken.",
    epilog=examples(
        ("bide demo", "watch it live"),
        ("bide demo --seed 7", "another day in the shop"),
        ("bide demo --json", "only the summary, for a script"),
    ),
)
def demo(
    seed: Annotated[int, typer.Option(help="Plan the day from this number; the same one plans the same day.")] = 42,
    json: Annotated[bool, typer.Option("--json", help="Print only the summary, as JSON.")] = False,
) -> None:
    from bide.cli.demo import run

    if hasattr(signal, "SIGPIPE"):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `bide demo | head` ends when head does
    try:
        code = run(seed, as_json=json)
    except KeyboardInterrupt:
        typer.echo("Stopped.", err=True)
        code = Exit.STOPPED
    raise typer.Exit(code)


@family.command(
    "doctor",
    help="Look at the place where messages live, and say what an operator should know.\n\n"
    "Nothing is made, and nothing is changed without --fix. Exit code 0: nothing is bad. 1: something is.",
    epilog=examples(
        ("bide doctor", "$BIDE_URL, or bide.db in this folder"),
        ("bide doctor --url sqlite:////var/lib/bide.db", ""),
        ("bide doctor --json", "for a script"),
        ("bide doctor --fix", "after a clock was ahead; stop what uses the file first"),
        ("bide doctor --url redis:// --acl", "a user for bide on a Redis server"),
    ),
)
def doctor(
    *,
    acl: Annotated[bool, typer.Option("--acl", help="Print ACL lines that create least-privilege Redis users.")] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="Set right first what can be: an SQLite file's time that is ahead.")
    ] = False,
    json: Json = False,
    url: Url = None,
    url_file: UrlFile = None,
    namespace: Namespace = None,
) -> None:
    from bide.cli.doctor import run, show_rights

    place = Place(url, url_file, namespace)
    if acl and json:
        raise typer.BadParameter("It prints lines for redis-cli: leave --json out.", param_hint="--acl")
    raise typer.Exit(show_rights(place) if acl else run(place, fix=fix, as_json=json))
