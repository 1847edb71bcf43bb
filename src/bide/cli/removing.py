"""`bide doctor --remove`: all that bide has made on a broker, deleted for good."""

import sys
from typing import TYPE_CHECKING, Any

from bide.cli.exits import Exit, WrongUsage
from bide.cli.output import echo, echo_json, escaped, note
from bide.core.formats import plural
from bide.errors import ConfigError

if TYPE_CHECKING:
    from bide.engines.rabbitmq.doctor.removing import Contents
    from bide.queue import Queue


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
