"""`bide cancel` and `purge`: messages that will never be delivered."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bide.cli.dead import check_named
from bide.cli.exits import Exit, WrongUsage
from bide.cli.options import ONLY_DEAD, IdOrTopic, Json, Section, TopicOrPattern
from bide.cli.output import echo, echo_json
from bide.cli.queues import CODES, ENDS, QueueOptions, Target, refused
from bide.cli.sweep import DryRun, Filters, Meant, Steps, Yes, carry_out, tell
from bide.core.formats import plural
from bide.types import CancelResult, Where

if TYPE_CHECKING:
    from bide.engines.sync import Engine


section: Section = Section("Messages")


@section.command(
    "cancel",
    help="Cancel a pending message, or with --all many: they will never be delivered.\n\n"
    "--all takes the pending messages of the topic; --key with *, --error, --older and --younger choose some of them. It shows "
    "the number and asks first. Without a terminal, it needs --yes.\n\n" + ENDS.format(done="CANCELLED"),
    examples=(
        ("bide cancel 00000000002a1f3c", "by its id"),
        ("bide cancel order.cancel --key order:42", "by its topic and key"),
        ("bide cancel order.cancel --all --key 'order:*' --dry-run", "shows which"),
        ("bide cancel order.cancel --all --key 'order:*' --yes", "does not ask"),
    ),
    needs="cancel",
)
def cancel(
    options: QueueOptions,
    message: IdOrTopic,
    *,
    key: Annotated[
        str | None, typer.Option("--key", metavar="KEY", help="Key of the message in TOPIC. With --all, * stands for any text.")
    ] = None,
    whole: Annotated[bool, typer.Option("--all", help="Cancel all pending messages of TOPIC.")] = False,
    filters: Filters,
    dry: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> int:
    if whole:
        return _many(options, message, filters.where(), dry=dry, yes=yes, as_json=as_json)
    if dry or yes or filters != Filters(key=key):
        raise WrongUsage("--error, --older, --younger, --dry-run and --yes need --all.")
    return _one(options, Target(message, key), as_json=as_json)


def _one(options: QueueOptions, target: Target, *, as_json: bool) -> int:
    with options.open() as queue:
        result = queue.cancel(target.id, topic=target.topic, key=target.key)
        dead = queue.get(target.id) if result is CancelResult.DEAD and queue.capabilities.lookup else None
        if result is CancelResult.GONE:
            target.note_if_no_id(queue)
    if as_json:
        echo_json({"result": result.value})
    elif result is CancelResult.CANCELLED:
        echo(f"CANCELLED: {target} will never be delivered.")
    else:
        echo(refused(result, target, dead))
    return CODES.get(result.name, Exit.OK)


def _many(options: QueueOptions, topic: str, where: Where | None, *, dry: bool, yes: bool, as_json: bool) -> int:
    with options.open() as queue:
        meant = Meant(queue, topic, ("scheduled", "ready"), where)

        def steps(engine: "Engine", name: str) -> Steps:
            from bide.queue.sync import bulk

            return bulk.cancel_chosen(engine, name, meant.states, meant.choice)

        step = carry_out(meant, "cancel", "cancelling", steps, question="Cancel", dry=dry, yes=yes, as_json=as_json)
    if isinstance(step, Exit):
        return step
    said = f"Cancelled {plural(step.done, 'message')} of {topic}."
    return tell(meant, step, said, as_json=as_json, cancelled=step.done, running=step.running)


of_topics: Section = Section("Topics")


@of_topics.command(
    "purge",
    help="Permanently delete messages of a topic: those in one state, or dead letters by their ids.\n\n"
    "--error, --key, --older and --younger choose some of a state. Leased messages can't be deleted. The command shows the "
    "number and asks first. Without a terminal, it needs --yes.\n\n"
    "Exit code 0: done. 4: some ids are not dead letters of this topic; the others were deleted. 1: a server of "
    "several did not answer; what the others have was deleted.\n\n" + ONLY_DEAD,
    examples=(
        ("bide purge order.pack --state dead", "asks"),
        ("bide purge order.pack --state dead --yes", "does not ask"),
        ("bide purge order.pack 00000000002a1f3c --yes", "one dead letter"),
        ("bide purge order.pack --state dead --error 'no such' --dry-run", "shows which"),
    ),
)
def purge(
    options: QueueOptions,
    topic: TopicOrPattern,
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Ids of dead letters.")] = None,
    *,
    state: Annotated[
        Literal["scheduled", "ready", "dead"] | None, typer.Option("--state", help="Delete messages in this state.")
    ] = None,
    filters: Filters,
    dry: DryRun = False,
    yes: Yes = False,
    as_json: Json = False,
) -> int:
    if not ids and state is None:
        raise WrongUsage("Say which messages: --state with one of scheduled, ready, dead; or the ids of dead letters.")
    if ids and state not in (None, "dead"):
        raise WrongUsage("Ids name dead letters. To delete a pending message, use: bide cancel ID")
    where = filters.where()
    check_named(topic, ids, whole=not ids, filtered=where is not None)
    of = state or "dead"
    with options.open() as queue:
        meant = Meant(queue, topic, (of,), where, tuple(dict.fromkeys(ids or ())))

        def steps(engine: "Engine", name: str) -> Steps:
            from bide.queue.sync import bulk

            if meant.ids:
                return bulk.purge_named(engine, name, meant.ids)
            if where is None:
                return bulk.purge_all(engine, name, of)
            if of == "dead":
                return bulk.purge_chosen(engine, name, meant.choice)
            return bulk.cancel_chosen(engine, name, (of,), meant.choice)

        step = carry_out(meant, "purge", "purging", steps, question="Permanently delete", dry=dry, yes=yes, as_json=as_json)
    if isinstance(step, Exit):
        return step
    return tell(meant, step, f"Deleted {meant.words(step.done)}.", as_json=as_json, purged=step.done, state=of)
