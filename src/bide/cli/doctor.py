"""`bide doctor`: what an operator should know of a queue, repairs, Redis users, and the end of a RabbitMQ queue."""

import shutil
import sys
import textwrap
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from bide.cli.exits import Exit, WrongUsage
from bide.cli.options import Json, Section
from bide.cli.output import GAP, LEAST, Table, echo, echo_json, escaped, is_terminal, note
from bide.cli.queues import QueueOptions
from bide.core.formats import plural
from bide.errors import BideError, ConfigError

if TYPE_CHECKING:
    from bide.engines.base import Finding
    from bide.engines.rabbitmq.doctor.repair import Contents
    from bide.queue import Queue


section: Section = Section("System")

_STYLES = {"ok": "", "warn": "yellow", "bad": "bold red"}


@section.command(
    "doctor",
    help="Check the file or server of a queue, and report what an operator should know.\n\n"
    "The doctor changes nothing without --fix or --remove. Exit code 0: nothing is bad. 1: something is bad.",
    examples=(
        ("bide doctor", "$BIDE_URL, or bide.db in this folder"),
        ("bide doctor --url sqlite:////var/lib/bide.db", ""),
        ("bide doctor --url amqp://localhost/shop?management=http://localhost:15672", ""),
        ("bide doctor --json", "for a script"),
        ("bide doctor --fix", "first stop the programs that use the file"),
        ("bide doctor --url redis:// --acl", "create users on a Redis server"),
        ("bide doctor --url amqp:// --remove", "delete a RabbitMQ queue; asks"),
    ),
)
def doctor(
    options: QueueOptions,
    *,
    acl: Annotated[bool, typer.Option("--acl", help="Print ACL lines that create least-privilege Redis users.")] = False,
    fix: Annotated[
        bool,
        typer.Option(
            "--fix",
            help="First repair what can be repaired: the time of an SQLite file that is ahead, what is missing in RabbitMQ.",
        ),
    ] = False,
    remove: Annotated[
        bool,
        typer.Option("--remove", help="Delete all of a namespace in RabbitMQ, with its messages. Asks first."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask before --remove.")] = False,
    as_json: Json = False,
) -> int:
    if acl and as_json:
        raise WrongUsage("--acl prints lines for redis-cli. Leave --json out.")
    if remove and (acl or fix):
        raise WrongUsage("--remove goes with neither --acl nor --fix. Give one of them.")
    if yes and not remove:
        raise WrongUsage("--yes is for --remove: the doctor asks nothing else. Leave it out.")
    queue = options.queue()  # says what is wrong with the URL, or what is not installed
    if acl:
        return _print_acl(queue)
    if remove:
        return remove_all(queue, yes=yes, as_json=as_json)
    findings = [*(_fix(queue) if fix else ()), *queue.examine()]
    findings += _moves(options, findings)
    if as_json:
        import json

        listed = [msgspec.structs.asdict(each) for each in findings]
        for line in json.dumps(listed, indent=2).split("\n"):
            echo(line)
    else:
        _print(findings)
    return Exit.FAILED if any(each.level == "bad" for each in findings) else Exit.OK


def _moves(options: QueueOptions, findings: Sequence["Finding"]) -> Sequence["Finding"]:
    """Moves to other queues that are under way, or were stopped. A queue that can't be opened has other findings."""
    from bide.adopt.queue.transfer_log import stopped_moves

    if any(each.level == "bad" for each in findings) or not options.queue().capabilities.inspect:
        return []
    try:
        with options.open() as queue:
            return stopped_moves(queue.session.engine())
    except BideError:
        return []


def _fix(queue: "Queue") -> Sequence["Finding"]:
    """Repair what can be repaired. The answer says so, too, if that was nothing."""
    from bide.engines.base import Finding

    fixed = queue.session.setup.source.mend()
    if fixed is None:
        return [Finding("mended", "nothing: --fix can't repair anything here")]
    return fixed or [Finding("mended", "nothing: there is nothing to repair")]


def _print_acl(queue: "Queue") -> int:
    """Print ACL lines that create a server's least-privilege users. No server is asked."""
    from bide.engines import registry

    settings = queue.session.setup.settings
    if registry.scheme_of(settings.url).partition("+")[0] not in ("redis", "rediss", "unix"):
        raise ConfigError("--acl works only with Redis. Give a redis:// URL: --url, --url-file or $BIDE_URL.")
    from bide.engines.redis.doctor import rights
    from bide.engines.redis.location import read

    address = read(settings)
    for role in rights.ROLES:
        echo(rights.line(role, address.namespace, rights.Use.of(address), database=address.db))
    note(rights.REMARK)
    return Exit.OK


def _print(findings: Sequence["Finding"]) -> None:
    marks = ["" if each.level == "ok" else f"  {each.level}: {each.advice}" for each in findings]
    widest = max((len(each.name) for each in findings), default=0)
    table = Table("", "", whole=True)
    for each, mark in zip(findings, marks, strict=True):
        lines = _wrapped(f"{each.where}: {each.value}{mark}" if each.where else each.value + mark, widest)
        table.add(
            [(f"{name:<{widest}}", line) for name, line in zip_longest([each.name], lines, fillvalue="")],
            [_STYLES[each.level]] * len(lines),
        )


def _wrapped(text: str, width_before: int) -> list[str]:
    """Lines that break between words on a terminal, after a column of this width."""
    if not is_terminal(sys.stdout):
        return [text]
    room = shutil.get_terminal_size().columns - width_before - len(GAP)
    return textwrap.wrap(text, max(room, LEAST), break_long_words=False, break_on_hyphens=False) or [""]


def remove_all(queue: "Queue", *, yes: bool, as_json: bool) -> int:
    """Remove the queue's namespace from its broker, if the user agrees."""
    guarded: Any = queue.session.setup.source
    source = guarded.plain
    if not hasattr(source, "removal"):
        raise ConfigError(
            "--remove works only with RabbitMQ. Give an amqp:// URL: --url, --url-file or $BIDE_URL. Elsewhere, delete the "
            "messages by `bide purge`, or the file, the keys or the schema of the namespace with the tools of its server."
        )
    if not yes and not sys.stdin.isatty():
        raise WrongUsage("There is no terminal to ask at. Add --yes to remove it without asking.")
    removal = source.removal()
    contents = removal.contents()
    if contents.is_empty:
        if as_json:
            echo_json({"queues": 0, "exchanges": 0, "messages": 0})
        else:
            echo(f"There is nothing of the namespace {source.namespace} at {source.shown}.")
        return Exit.OK
    if not yes and not _agreed(contents, f"the namespace {source.namespace} at {source.shown}"):
        note("Nothing was changed.")
        return Exit.FAILED
    removed = removal.carry_out(contents)
    if as_json:
        echo_json(removed._asdict())
    else:
        what = f"{plural(removed.queues, 'queue')} and {plural(removed.exchanges, 'exchange')}"
        echo(f"Removed {what} of the namespace {source.namespace}, with {plural(removed.messages, 'message')}.")
    return Exit.OK


def _agreed(contents: "Contents", name: str) -> bool:
    """Whether the user agrees, told what would be lost."""
    if contents.receivers:
        note(f"{plural(contents.receivers, 'receiver')} still connected: stop all programs first, or they make it anew.")
    if not contents.listed:
        note("Leased messages, and those that are about to be passed on, are not counted.")
    note(f"This would be lost for good: {contents.words()}.")
    print(escaped(f"Remove {name} with all that is in it?"), "[y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")
