"""`bide requeue` and `bide purge`: many messages brought back, or dropped for good."""

import sys

import typer

from bide.cli.exits import Exit
from bide.cli.output.out import say, say_json, tell
from bide.cli.output.progress import watched
from bide.cli.output.safe import escaped
from bide.cli.place import Place
from bide.types import State


def requeue(place: Place, topic: str, ids: list[str], delay: str | None, *, as_json: bool = False) -> int:
    """Those named, or all when none is."""
    wait = delay or 0
    named = list(dict.fromkeys(ids))
    with place.queue() as queue:
        if named:
            wanted = len(named)
            done = queue.requeue(topic, named, delay=wait)
        else:
            wanted = queue.stats(topic).dead
            done = watched(
                lambda: queue.requeue(topic, delay=wait),
                lambda: queue.stats(topic).dead,
                f"requeueing {topic}",
                wanted,
            )
    count, keyless = int(done), done.keyless
    if as_json:
        say_json({"topic": topic, "requeued": count, "keyless": keyless})
    elif not wanted:
        say(f"{topic} has no dead letters.")
    else:
        say(f"{count:,} of {_letters(wanted)} of {topic} got a new life.")
        if keyless:
            say(f"{keyless:,} of them without {'its' if keyless == 1 else 'their'} key, as a newer message holds it.")
    return Exit.GONE if named and count < wanted else Exit.OK


def purge(place: Place, topic: str, state: State, *, yes: bool, as_json: bool = False) -> int:
    if not yes and not sys.stdin.isatty():
        raise typer.BadParameter("This can't be undone, and there is no terminal to ask at: add it.", param_hint="--yes")
    with place.queue() as queue:
        wanted: int = getattr(queue.stats(topic), state)
        if wanted and not yes and not _agreed(f"Drop {wanted:,} {state} of {topic} for good?"):
            tell("Nothing was dropped.")
            return Exit.FAILED
        count = watched(
            lambda: queue.purge(topic, state=state),
            lambda: int(getattr(queue.stats(topic), state)),
            f"purging {topic}",
            wanted,
        )
    if as_json:
        say_json({"topic": topic, "state": state, "purged": count})
    else:
        say(
            f"{count:,} {state} of {topic} {'was' if count == 1 else 'were'} dropped."
            if count
            else f"{topic} has no {state} ones."
        )
    return Exit.OK


def _agreed(question: str) -> bool:
    print(escaped(question), "[y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _letters(count: int) -> str:
    return f"{count:,} dead letter" + ("" if count == 1 else "s")
