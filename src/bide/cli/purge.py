"""`bide purge`: messages deleted for good."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from bide.cli.dead import check_named
from bide.cli.exits import Exit, WrongUsage
from bide.cli.options import ONLY_DEAD, Json, Section, TopicOrPattern
from bide.cli.output import echo, echo_json
from bide.cli.queues import QueueOptions
from bide.cli.sweep import DryRun, Filters, Meant, Steps, Yes, carry_out, counts_of, ended, left_out

if TYPE_CHECKING:
    from bide.engines.sync import Engine

section: Section = Section("Topics")


@section.command(
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
            from bide.queue.sync import sweeping

            if meant.ids:
                return sweeping.purge_named(engine, name, meant.ids)
            if where is None:
                return sweeping.purge_all(engine, name, of)
            if of == "dead":
                return sweeping.purge_chosen(engine, name, meant.choice)
            return sweeping.cancel_chosen(engine, name, (of,), meant.choice)

        step = carry_out(meant, "purge", "purging", steps, question="Permanently delete", dry=dry, yes=yes, as_json=as_json)
    if isinstance(step, Exit):
        return step
    if as_json:
        echo_json(counts_of(topic, "purged", step, state=of))
    elif step.asked or step.left:
        echo(f"Deleted {meant.words(step.done)}.{left_out(step)}")
    else:
        echo(meant.none())
    return ended(step, named=bool(meant.ids))
