"""Commands that change many messages: which are meant, a dry run, a question, and how far the work has come."""

import itertools
import sys
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import typer

from bide.cli.exits import Exit, WrongUsage
from bide.cli.options import parse_duration
from bide.cli.output import Table, echo, echo_json, escaped, note, note_missing, now_ms, progress, relative
from bide.cli.pages import PAGE, find_topics, read_pages
from bide.core import formats
from bide.core.formats import plural
from bide.errors import BideError, OutcomeUnknown, Unavailable, Unsupported
from bide.types import Info, State, Where

if TYPE_CHECKING:
    from bide.engines.base import Stored
    from bide.engines.sync import Engine
    from bide.queue import Queue
    from bide.queue.bulk import Choice, Progress

FIRST = 5  # messages that a dry run shows

DryRun = Annotated[bool, typer.Option("--dry-run", help="Change nothing: show how many messages, and the first of them.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]

Steps: TypeAlias = "Generator[Progress, None, None]"


class Filters(NamedTuple):
    """The options that choose messages."""

    error: Annotated[
        str | None,
        typer.Option("--error", metavar="TEXT", help="Only messages with TEXT in their last error, in upper or lower case."),
    ] = None
    key: Annotated[
        str | None, typer.Option("--key", metavar="PATTERN", help="Only messages with this key. * stands for any text.")
    ] = None
    older: Annotated[
        str | None, typer.Option("--older", metavar="TIME", help="Only messages that were due longer ago: 1h.")
    ] = None
    younger: Annotated[
        str | None, typer.Option("--younger", metavar="TIME", help="Only messages that were due less long ago, or not yet.")
    ] = None

    def where(self) -> Where | None:
        """What they say. None: all are meant."""
        if self == Filters():
            return None
        older, younger = parse_duration(self.older, "--older"), parse_duration(self.younger, "--younger")
        return Where(error=self.error, key=self.key, older=older, younger=younger)


class Meant(NamedTuple):
    """The messages that a command is about."""

    queue: "Queue"
    pattern: str  # of topics
    states: Sequence[State]
    where: Where | None
    ids: Sequence[str] = ()

    @property
    def topics(self) -> list[str]:
        return find_topics(self.queue, self.pattern)

    @property
    def choice(self) -> "Choice":
        from bide.queue.bulk import Choice

        return Choice(self.where, self.queue.session.setup.now_ms())

    @property
    def name(self) -> str:
        return self.states[0] if len(self.states) == 1 else "pending"

    def words(self, count: int) -> str:
        return f"{plural(count, 'dead letter' if self.name == 'dead' else f'{self.name} message')} of {self.pattern}"

    def none(self) -> str:
        """What to say if there are none."""
        kind = "dead letters" if self.name == "dead" else f"{self.name} messages"
        return f"{self.pattern} has no {kind}{'' if self.where is None else ' that match'}."

    def look(self) -> "SweepLook":
        """What is stored in these states, whether it is meant or not."""
        if not self.queue.capabilities.inspect:
            return SweepLook()
        topics = self.topics
        whole = self.queue.stats(self.pattern if topics == [self.pattern] else None)
        each = [whole] if topics == [self.pattern] else [whole.topics[topic] for topic in topics if topic in whole.topics]
        told: list[int] = [getattr(counts, state) for counts in each for state in self.states]
        return SweepLook(sum(told), any(counts.about for counts in each), tuple(whole.missing))

    def pages(self, absent: set[str]) -> Iterator[Iterable[Info]]:
        """All that are meant, as they are now. `absent` gets the servers that did not answer."""
        if self.ids and self.queue.capabilities.lookup:
            found = itertools.chain.from_iterable(self._found(absent))
            yield [info for info in found if info.topic == self.pattern and info.state in self.states]
            return
        for page in read_pages(self.queue, self.pattern, self.states, where=self.where):
            absent.update(page.missing)
            yield [info for info in page if info.id in self.ids] if self.ids else page

    def _found(self, absent: set[str]) -> Iterator[list[Info]]:
        """What is stored under the ids."""
        from bide.queue.envelope import info, ref

        session, missing = self.queue.session, self.look().missing
        for first in range(0, len(self.ids), PAGE):
            refs = [ref(id, None, None) for id in self.ids[first : first + PAGE]]
            try:
                stored: Sequence[Stored | None] = session.engine().get(refs, brief=bool(missing))
            except (Unavailable, OutcomeUnknown) as error:
                if not missing:
                    raise
                absent.update(missing)
                stored = error.answers if isinstance(error, OutcomeUnknown) else ()
            yield [info(each, session.setup.envelope) for each in stored if each is not None]

    def counted(self) -> tuple[int, list[Info], set[str]]:
        """How many are meant, the first of them, and the servers that did not answer."""
        count, first, absent = 0, list[Info](), set[str]()
        with progress(f"counting {self.pattern}", None) as moved:
            for page in self.pages(absent):
                found = list(page)
                first += found[: FIRST - len(first)]
                count += len(found)
                moved(count)
        note_missing(sorted(absent))
        return count, first, absent


class SweepLook(NamedTuple):
    stored: int | None = None  # messages; None: the engine counts nothing
    about: bool = False
    missing: tuple[str, ...] = ()


def carry_out(
    meant: Meant,
    verb: str,
    doing: str,
    steps: "Callable[[Engine, str], Steps]",
    *,
    question: str | None = None,
    dry: bool,
    yes: bool = False,
    as_json: bool,
) -> "Progress | Exit":
    """Change the messages, if the user agrees, or show what would be changed. An exit code: nothing was."""
    if dry:
        return _dry_run(meant, verb, as_json=as_json)
    if question is not None and not _ask(meant, question, yes=yes):
        return Exit.FAILED
    return work(meant, doing, steps)


def _dry_run(meant: Meant, verb: str, *, as_json: bool) -> Exit:
    """Show what a command would do."""
    count, first, absent = meant.counted()
    code = Exit.FAILED if absent else Exit.OK
    if as_json:
        shown = [formats.message(each) for each in first]
        echo_json({"topic": meant.pattern, "dry_run": True, "found": count, "first": shown})
        return code
    if first:
        now = now_ms()
        table = Table("id", "topic", "state", "due", "key", "last error", short=("key",))
        table.add(
            [
                (each.id, each.topic, each.state, relative(each.due, now), each.key or "", each.last_error or "")
                for each in first
            ]
        )
    echo(f"{verb} would change {meant.words(count)}. Nothing was changed." if count else meant.none())
    return code


def _ask(meant: Meant, question: str, *, yes: bool) -> bool:
    """Whether the user agrees. Without messages there is nothing to ask."""
    if yes:
        return True
    if not sys.stdin.isatty():
        raise WrongUsage("There is no terminal to ask at. Add --yes to do it without asking, or --dry-run to look.")
    look = SweepLook() if meant.where is not None or meant.ids else meant.look()
    note_missing(look.missing)
    many = meant.counted()[0] if look.stored is None else look.stored
    if not many:
        return True
    about = "about " if look.about else ""
    text = f"{question} {about}{meant.words(many)}?"
    print(escaped(text), "[y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    note("Nothing was changed.")
    return False


def work(meant: Meant, what: str, steps: Callable[["Engine", str], Steps]) -> "Progress":
    """Change the messages, topic by topic, and show how far it has come."""
    from bide.queue.bulk import Progress

    engine, look = meant.queue.session.engine(), SweepLook() if meant.ids else meant.look()
    done = Progress(missing=look.missing)
    try:
        with progress(f"{what} {meant.pattern}", len(meant.ids) or look.stored) as moved:
            for topic in meant.topics:
                before = done
                for step in steps(engine, topic):
                    done = before.plus(step)
                    moved(done.seen)
    except Unsupported:  # which is so before anything is changed
        raise
    except (KeyboardInterrupt, BideError):
        note(f"Stopped. Changed by then: {plural(done.done, 'message')}, and possibly one more page.")
        raise
    return done


def tell(meant: Meant, step: "Progress", said: str, *, as_json: bool, **counts: Any) -> Exit:
    """Print what was done, in words or as `counts`, and what was not. Gives the exit code."""
    gone = step.asked - step.done - step.running
    if as_json:
        amiss = {"missing": step.missing, "refused": step.refused, "unconfirmed": step.unconfirmed or None}
        echo_json({"topic": meant.pattern, **counts, "asked": step.asked, "gone": gone, **amiss})
    elif step.asked or step.left:
        echo(said + _left_out(step, gone))
        if step.keyless:
            their = "its" if step.keyless == 1 else "their"
            echo(f"{step.keyless:,} of them lost {their} key, because a newer message has it.")
    else:
        echo(meant.none())
    if step.left:
        note(f"bide: {step.left} All else is done: run the command again later for the rest.")
    if step.unconfirmed:
        note(f"bide: {'It' if step.left else 'All'} is done, but {step.short}")
    if step.left or step.unconfirmed:
        return Exit.FAILED
    return Exit.GONE if meant.ids and step.done < step.asked else Exit.OK


def _left_out(step: "Progress", gone: int) -> str:
    """What became of those that were meant and were not changed."""
    running, parts = step.running, []
    if running:
        parts.append(f"{plural(running, 'message')} {'is' if running == 1 else 'are'} with a worker now.")
    if gone:
        perhaps = ", or lie with a server that failed" if step.left else ""
        parts.append(f"{plural(gone, 'message')} had moved or ended before{perhaps}.")
    return "".join(f" {each}" for each in parts)
