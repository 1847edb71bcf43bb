"""`bide move`: the messages of one queue, moved to another, unless messages would be lost there."""

import shlex
from collections.abc import Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from bide.cli.adopt.run import NOTHING, carry_out, has_seen_nothing, look
from bide.cli.exits import Exit, WrongUsage
from bide.cli.options import Section
from bide.cli.output import echo, echo_json, note
from bide.cli.pages import topic_pattern
from bide.cli.queues import QueueOptions, first_line
from bide.cli.topics import count
from bide.core.formats import plural
from bide.errors import ConfigError, SchemaMismatch, Unavailable

if TYPE_CHECKING:
    import re

    from bide.adopt.adoption import Adoption
    from bide.adopt.copies import Doubt
    from bide.adopt.queue.move import QueueSource
    from bide.queue import Queue
    from bide.types import Stats


def check(old: "Queue", new: "Queue") -> None:
    ours, theirs = (each.session.setup.source for each in (old, new))
    if (ours.shown, ours.namespace) == (theirs.shown, theirs.namespace):
        raise WrongUsage("FROM and TO are the same queue. Name another URL or another --to-namespace.")
    if not (old.capabilities.inspect and old.capabilities.cancel):
        raise ConfigError(
            f"{ours.shown} can't list what waits there. Let its workers run until it is empty, while senders use the other "
            "queue: the page Move to another engine of the documentation says how."
        )


def check_the_way_back(old: "Queue", new: "Queue") -> None:
    """What a move in the other direction has on its way is in neither queue for a reader of this one."""
    from bide.adopt.adoption import destination_of
    from bide.adopt.queue.transfer_log import OtherMove, destinations

    if new.capabilities.inspect and destination_of(old) in destinations(new.session.engine()):
        raise OtherMove("A move from TO to FROM was stopped on its way, or goes on. First let it end: run that command again.")


def check_that_they_differ(moving: "QueueSource", new: "Queue") -> None:
    """One queue may have two URLs. Then what is written to one of them is in the other, too."""
    moving.log.begin()
    if new.capabilities.inspect and moving.log.is_in(new.session.engine()):
        raise WrongUsage("FROM and TO are the same queue, by two URLs. Name another one.")


def check_the_give_back(old: "Queue", there: QueueOptions) -> None:
    """Raises a BideError if TO is there, and knows what it got, or may do so."""
    from bide.adopt.adoption import destination_of
    from bide.adopt.queue.transfer_log import destinations

    check(old, there.queue())
    if destinations(old.session.engine()) != {destination_of(there.queue())}:
        return
    try:
        new = there.open(otherwise="It is gone.")
    except ConfigError as error:  # a file
        note(f"bide: {error}")
        return
    try:
        with new:
            new.session.engine().put([])  # RabbitMQ is asked by the first call
            if new.capabilities.idempotent:  # else it never knows what it got
                _check_that_it_is_in_doubt(old)
    except Unavailable as error:
        note(f"bide: {error}")
    except (ConfigError, SchemaMismatch) as error:  # with another password, or a newer bide, it may be there
        raise ConfigError(
            f"{error} To go on with what was on its way, leave out --doubtful. If that queue is gone for good, name another "
            "one as TO, such as sqlite:///new.db."
        ) from error


def _check_that_it_is_in_doubt(old: "Queue") -> None:
    from bide.adopt.copies import SURE
    from bide.adopt.queue.transfer_log import OtherMove, age_of, batches_of

    batches, _ = batches_of(old.session.engine())
    if age_of(old.session.engine(), batches) <= SURE:
        raise OtherMove(
            "TO is there, and knows for nine minutes what it got, so nothing is in doubt: leave out --doubtful, and the "
            "command goes on with what was on its way. To go back, let it end, and move from TO to FROM."
        )


section: Section = Section("System")


@section.command(
    "move",
    help="Move the messages of one queue to another, while workers and senders go on.\n\n"
    "Messages keep their key, due time, headers, priority, expiry and attempts; dead letters stay dead letters. They get new "
    "ids. What a worker has at this moment is left, and told at the end. The same command resumes a run that was stopped or "
    "killed. The documentation has the order of steps.\n\n"
    "Not from RabbitMQ, which can't list what waits: the documentation says how to change over.",
    examples=(
        ("bide move sqlite:///bide.db redis://localhost/0 --dry-run", "only look"),
        ("bide move sqlite:///bide.db redis://localhost/0", ""),
        ("bide move @old.url @new.url --topic 'order.*' --follow", "URLs in files"),
    ),
)
def move(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FROM", help="URL of the queue that has the messages; or @FILE, whose first line it is.", show_default=False
        ),
    ],
    destination: Annotated[
        str, typer.Argument(metavar="TO", help="URL of the queue that gets them; or @FILE.", show_default=False)
    ],
    *,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", metavar="TOPIC", help="Only this topic. With *, as in 'order.*', all that match. May be repeated."
        ),
    ] = None,
    from_namespace: Annotated[
        str | None, typer.Option("--from-namespace", metavar="NAME", help="Namespace of FROM. Default: its URL's, or bide.")
    ] = None,
    to_namespace: Annotated[
        str | None, typer.Option("--to-namespace", metavar="NAME", help="Namespace of TO. Default: its URL's, or bide.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Change nothing. Count, and show the first ten messages, with dates.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on for what is still sent to FROM, until Ctrl-C or SIGTERM.")
    ] = False,
    doubtful: Annotated[
        Literal["send", "forget", "give-back"] | None,
        typer.Option(
            "--doubtful",
            help="For messages that a run was moving when it was killed, more than nine minutes ago: send them again, forget "
            "them in FROM, or give them back to FROM, which moves nothing else. If TO is gone for good, give them back at any "
            "time.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> int:
    if follow and dry_run:
        raise WrongUsage("Both --follow and --dry-run were given: leave one of them out.")
    if topic and "" in topic:
        raise WrongUsage("--topic is empty: give it a value, or leave it out.")
    if doubtful and dry_run:
        raise WrongUsage("Both --doubtful and --dry-run were given: leave one of them out.")
    if doubtful == "give-back" and (topic or follow):
        raise WrongUsage("All that is on its way is given back, and that is all: leave out --topic and --follow.")
    matching = topic_pattern(*(topic or ["*"]))
    there = QueueOptions(_url(destination), None, to_namespace)
    with QueueOptions(_url(source), None, from_namespace).open(otherwise="Is FROM the right URL?") as old:
        if dry_run:  # the other queue need not be there yet
            check(old, there.queue())
            looking = _source(old, there.queue(), matching, looks=True)
            _check_the_pauses(looking.listing.chosen(), there.queue())
            ended = (
                "Nothing was changed. TO was not asked: perhaps it can't be reached, or one of these keys waits there already."
            )
            return look(looking, there.queue(), as_json=as_json, nothing=_nothing(old, looking, topic), ended=ended)
        if doubtful == "give-back":
            check_the_give_back(old, there)
            return _given_back(old, as_json=as_json)
        return _moved(old, there, matching, MoveOptions(topic, follow, doubtful or "stop", as_json))


class MoveOptions(NamedTuple):
    """What the command line says about a run."""

    topics: Sequence[str] | None
    follow: bool
    doubt: "Doubt"
    as_json: bool


def _moved(old: "Queue", there: QueueOptions, topics: "re.Pattern[str]", asked: MoveOptions) -> int:
    from bide.adopt.adoption import Adoption

    with there.open(create=True) as new:
        check(old, new)
        check_the_way_back(old, new)
        moving = _source(old, new, topics)
        with closing(moving):
            check_that_they_differ(moving, new)
            before, nothing = moving.listing.chosen(), _nothing(old, moving, asked.topics)
            _check_the_pauses(before, new)
            _pause_as_before(before, new)
            adoption = Adoption(moving, new, doubt=asked.doubt)
            code = carry_out(adoption, moving, "moving", follow=asked.follow, as_json=asked.as_json)
        _tell(adoption, moving, new, before, as_json=asked.as_json)
        if nothing and code == Exit.OK and not asked.as_json and has_seen_nothing(adoption):
            note(nothing)
        return code or (Exit.FAILED if adoption.refused or adoption.late else Exit.OK)


def _given_back(old: "Queue", *, as_json: bool) -> int:
    from bide.adopt.queue.move import give_all_back

    count, destinations = give_all_back(old.session.engine(), old.session.setup.source.shown)
    if as_json:
        echo_json({"moved": 0, "given_back": count})
    else:
        echo(f"Given back: {count:,}. Nothing else was moved.")
    what = "them" if count else "what was on its way"
    for each in sorted(destinations):
        note(f"If {each} is there still, it may have copies of {what}, which its workers would handle, too.")
    return Exit.OK


def _url(given: str) -> str:
    return first_line(given[1:], f"@{given[1:]}:") if given.startswith("@") else given


def _source(old: "Queue", new: "Queue", topics: "re.Pattern[str]", *, looks: bool = False) -> "QueueSource":
    from bide.adopt.adoption import destination_of
    from bide.adopt.queue.messages import Able
    from bide.adopt.queue.move import QueueSource

    can = new.capabilities
    able = Able(past=can.past, keys=can.keys, priority=can.priority, longest=can.max_delay, largest=can.max_body)
    shown = old.session.setup.source.shown
    return QueueSource(old.session.engine(), shown, topics, able, destination_of(new), looks=looks)


def _paused(topics: "Mapping[str, Stats]") -> list[str]:
    """Of which something moves: who has resumed another one there meanwhile has done so on purpose."""
    return [name for name, each in topics.items() if each.paused and each.scheduled + each.ready + each.dead]


def _check_the_pauses(topics: "Mapping[str, Stats]", new: "Queue") -> None:
    paused = _paused(topics)
    if paused and not new.capabilities.pause:
        raise ConfigError(f"{paused[0]} is paused, and the other queue can't pause it. Resume it, or leave it out by --topic.")


def _pause_as_before(topics: "Mapping[str, Stats]", new: "Queue") -> None:
    """A topic that is paused does not begin to be delivered because it is moved."""
    for name in _paused(topics):
        new.pause(name)
        note(f"{name} is paused, and so it is paused in the other queue, too: {_resume(name, new)}")


def _resume(topic: str, queue: "Queue") -> str:
    """The command for it. A password is left out."""
    from bide.engines.base import Settings

    at = queue.session.setup.source
    words = ["bide", "resume", topic, "--url", at.shown]
    return shlex.join(words if at.namespace == Settings(url="").namespace else [*words, "--namespace", at.namespace])


def _nothing(old: "Queue", moving: "QueueSource", topics: Sequence[str] | None) -> str:
    """What to say if nothing was there to move. Empty: there are such topics, and what they hold is told."""
    if moving.listing.chosen():
        return ""
    return f"No topic there matches {' or '.join(topics)}." if topics and old.topics() else NOTHING


def _tell(adoption: "Adoption", moving: "QueueSource", new: "Queue", before: "Mapping[str, Stats]", *, as_json: bool) -> None:
    """What was moved, and what both queues hold now."""
    left = moving.listing.chosen()
    there = new.stats().topics if new.capabilities.inspect else {}
    names = sorted({*before, *left, *adoption.topics})
    if as_json:
        echo_json(
            {
                "moved": adoption.adopted,
                **adoption.counts,
                "late": adoption.late,
                "topics": {name: {"from": _counts(left.get(name)), "to": _counts(there.get(name))} for name in names},
            }
        )
        return
    taken_over = moving.log.taken_over
    echo(f"Moved {plural(adoption.adopted, 'message')} to {plural(len(adoption.topics), 'topic')}.")
    if adoption.resumed:
        echo(f"{adoption.resumed:,} of them had been begun by a run that was stopped.")
    if adoption.gone:
        echo(f"Taken by workers, cancelled or moved in time meanwhile: {adoption.gone:,}.")
    if adoption.late and not taken_over:  # the other run counts what it has taken back
        echo(
            f"{adoption.late:,} were changed here when the other queue had delivered them, or somebody had changed them there."
        )
    for reason, number in sorted(adoption.refused.items()):
        echo(f"Left where they are: {number:,}, because each {reason}. The first is {adoption.examples[reason]}")
    if adoption.broke_off and not (adoption.in_hand or taken_over):
        echo("Some may be on their way. Run the command again within nine minutes: it goes on with them.")
    if adoption.forgotten:
        echo(f"Forgotten here, as the other queue has them: {adoption.forgotten:,}.")
    if adoption.in_hand and not (adoption.asked or taken_over):
        echo(f"{adoption.in_hand:,} are on their way. Run the command again within nine minutes: it goes on with them.")
    for name in names:
        known = _words(there.get(name)) if new.capabilities.inspect else "nobody can count"
        echo(f"{name}: left {_words(left.get(name))}; there {known}.")


def _counts(stats: "Stats | None") -> dict[str, int | bool] | None:
    if stats is None:
        return None
    counts = {"pending": stats.scheduled + stats.ready, "leased": stats.leased, "dead": stats.dead}
    return {**counts, "about": True} if stats.about else dict(counts)


def _words(stats: "Stats | None") -> str:
    if stats is None or not stats.scheduled + stats.ready + stats.leased + stats.dead:
        return "nothing"
    pending = stats.scheduled + stats.ready
    states = {"pending": count(pending, stats), "leased": f"{stats.leased:,}", "dead": f"{stats.dead:,}"}
    return ", ".join(f"{number} {state}" for state, number in states.items() if number != "0")
