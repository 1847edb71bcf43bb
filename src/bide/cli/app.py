"""The commands, their options and their help; each does its work in a file or folder of its own."""

import signal
from typing import Annotated

import typer

import bide

app: typer.Typer = typer.Typer(
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"bide {bide.__version__}")
        raise typer.Exit


@app.callback()
def _bide(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Delayed messages: on time, at least once, until you cancel them."""


@app.command(
    help="See bide at work: an order shop on a temporary SQLite file, for about twelve seconds.\n\n"
    "Orders must be paid in time, or a delayed message cancels them. Most are paid, one too late, and one gets more time. "
    "A mail fails twice, and a worker process is killed with parcels in its hands.\n\n"
    "In the end every message is accounted for. Exit code 0: every promise was kept. 1: one was broken.",
    epilog="Examples:\n\n"
    "  bide demo            watch it live\n\n"
    "  bide demo --seed 7   another day in the shop\n\n"
    "  bide demo --json     only the summary, for a script",
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
        code = 130
    raise typer.Exit(code)


@app.command(
    help="Look at the place where messages live, and say what an operator should know.\n\n"
    "Nothing is changed, and nothing is made. Exit code 0: nothing is bad. 1: something is.",
    epilog="Examples:\n\n"
    "  bide doctor                               $BIDE_URL, or bide.db in this folder\n\n"
    "  bide doctor --url sqlite:////var/lib/bide.db\n\n"
    "  bide doctor --json                        for a script",
)
def doctor(
    url: Annotated[str | None, typer.Option(help="Where messages live. Default: $BIDE_URL, else sqlite:///bide.db.")] = None,
    namespace: Annotated[str, typer.Option(help="The queue's namespace.")] = "bide",
    json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
) -> None:
    from bide.cli.doctor import run

    raise typer.Exit(run(url, namespace, as_json=json))
