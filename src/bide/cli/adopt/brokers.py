"""`bide adopt` from brokers: sorted sets, lists and BullMQ in Redis, and queues of RabbitMQ with a TTL."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

import typer

from bide.cli.adopt.command import adopt
from bide.cli.adopt.options import MESSAGES, RABBITMQ, REDIS, SOURCE, BodyAs, MessageOptions, ParseBody, RunOptions
from bide.cli.exits import WrongUsage
from bide.cli.options import Section, parse_duration
from bide.cli.output import note
from bide.cli.queues import QueueOptions
from bide.core.formats import plural
from bide.core.times import duration_ms

if TYPE_CHECKING:
    from bide.adopt.rabbitmq.ttl import TTLQueue
    from bide.adopt.redis.plain import Jobs
    from bide.adopt.redis.server import SourceServer
    from bide.adopt.shape import Shape
    from bide.adopt.source import AdoptSource


section: Section = Section("Sources")


class EntryOptions(NamedTuple):
    """What an entry is: the message, or the id of a job in a hash."""

    member: Annotated[
        str,
        typer.Option(
            "--member",
            metavar="json|raw|FIELD",
            help="What the body is: the entry as JSON or as text, or a field of its JSON, as in data or job.data.",
            rich_help_panel=MESSAGES,
        ),
    ] = "json"
    body_as: BodyAs = None
    parse_body: ParseBody = False
    job_hash: Annotated[
        str | None,
        typer.Option(
            "--job-hash",
            metavar="KEY",
            help="Entries are ids. This hash has the jobs by their ids, and they are the messages.",
            rich_help_panel=SOURCE,
        ),
    ] = None
    job_id: Annotated[
        str | None,
        typer.Option(
            "--job-id",
            metavar="FIELD",
            help="With --job-hash: entries are JSON, and this field is the id. Default: entries are the ids.",
            rich_help_panel=SOURCE,
        ),
    ] = None

    split: Annotated[
        str | None,
        typer.Option(
            "--split",
            metavar="TEXT",
            help="Entries, or their ids, are a topic and a key with this text between them. With : order:42 becomes the "
            "message of order with the key 42.",
            rich_help_panel=MESSAGES,
        ),
    ] = None

    def check(self, messages: MessageOptions) -> None:
        if self.split == "":
            raise WrongUsage("--split is empty: give the text between topic and key, such as :")
        messages.check(topic=self.split is None, keyed=self.split is not None)

    def unkeyed(self, messages: MessageOptions) -> str | None:
        """What to do if the queue has no keys. None: the messages get none."""
        return messages.unkeyed if self.split is None else "leave out --split."

    def shape(self, messages: MessageOptions, longest: int) -> "Shape":
        return messages.shape(self.member, longest, self.body_as, parse_body=self.parse_body, split=self.split)

    def jobs(self, server: "SourceServer") -> "Jobs | None":
        from bide.adopt.redis.plain import Jobs

        if self.job_hash is not None:
            return Jobs(server, self.job_hash, self.job_id)
        if self.job_id is not None:
            raise WrongUsage(
                "--job-id says where an entry has the id of its job: name the hash of the jobs, too: --job-hash KEY."
            )
        return None


@section.command(
    "redis-zset",
    help="Move the members of a sorted set in Redis whose scores are due times.\n\n"
    "A score is seconds or milliseconds since 1970; its size tells which, or --score does. A member is the message, as JSON or "
    "as text; or it is the id of a job in a hash (--job-hash), whose value is the message then.",
    examples=(
        ("bide adopt redis-zset delayed --topic t --source redis://old/0 --dry-run", ""),
        ("bide adopt redis-zset delayed --topic t --source redis://old/0", ""),
        ("bide adopt redis-zset bucket --job-hash jobs --topic-field topic …", "ids"),
        ("bide adopt redis-zset bucket --job-hash jobs --split : …", "ids as TOPIC:KEY"),
    ),
)
def redis_zset(
    options: QueueOptions,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the sorted set.", show_default=False)],
    run: RunOptions,
    messages: MessageOptions,
    entries: EntryOptions,
    *,
    score: Annotated[Literal["auto", "s", "ms"], typer.Option(help="Unit of the scores.", rich_help_panel=MESSAGES)] = "auto",
) -> int:
    entries.check(messages)
    wanted = run.run(REDIS)

    def opened(longest: int) -> "AdoptSource":
        from bide.adopt.redis.plain import SortedSet
        from bide.adopt.redis.server import SourceServer

        server = SourceServer(wanted.url)
        return SortedSet(server, key, entries.shape(messages, longest), unit=score, jobs=entries.jobs(server))

    return adopt(options, opened, wanted, unkeyed=entries.unkeyed(messages))


@section.command(
    "redis-list",
    help="Move the elements of a list in Redis, such as the ready list of a topic. All of them are due now.\n\n"
    "An element is the message, as JSON or as text; or it is the id of a job in a hash (--job-hash).",
    examples=(
        ("bide adopt redis-list ready --topic t --source redis://old/0", ""),
        ("bide adopt redis-list ready --end right …", "consumers call BRPOP"),
    ),
)
def redis_list(
    options: QueueOptions,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Key of the list.", show_default=False)],
    run: RunOptions,
    messages: MessageOptions,
    entries: EntryOptions,
    *,
    end: Annotated[
        Literal["left", "right"],
        typer.Option(help="Where consumers take: BLPOP left, BRPOP right. The order is kept.", rich_help_panel=SOURCE),
    ] = "left",
) -> int:
    entries.check(messages)
    wanted = run.run(REDIS)

    def opened(longest: int) -> "AdoptSource":
        from bide.adopt.redis.plain import ReadyList
        from bide.adopt.redis.server import SourceServer

        server = SourceServer(wanted.url)
        return ReadyList(server, key, entries.shape(messages, longest), end=end, jobs=entries.jobs(server))

    return adopt(options, opened, wanted, unkeyed=entries.unkeyed(messages))


@section.command(
    "bullmq",
    help="Move the delayed jobs of a queue of BullMQ, while its workers and producers go on.\n\n"
    "The data of a job is the body. Its name and its id become headers, and it keeps the attempts that it has left. Jobs of "
    "flows and of job schedulers stay. --topic-field and --key-field may be name, id, or a field of the data, as in data.user.",
    examples=(
        ("bide adopt bullmq mail --topic mail --source redis://old/0 --dry-run", ""),
        ("bide adopt bullmq mail --topic-field name --key-field data.user …", ""),
        ("bide adopt bullmq mail --topic mail --waiting …", "also what is due"),
    ),
)
def bullmq(
    options: QueueOptions,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the queue.", show_default=False)],
    run: RunOptions,
    messages: MessageOptions,
    *,
    body_as: BodyAs = None,
    prefix: Annotated[
        str, typer.Option(metavar="PREFIX", help="The prefix option of its Queue.", rich_help_panel=SOURCE)
    ] = "bull",
    waiting: Annotated[
        bool,
        typer.Option(
            "--waiting", help="Also jobs that wait for a worker now: wait, paused, prioritized.", rich_help_panel=SOURCE
        ),
    ] = False,
) -> int:
    messages.check()
    wanted = run.run(REDIS)

    def opened(longest: int) -> "AdoptSource":
        from bide.adopt.redis.bullmq import BullMQ
        from bide.adopt.redis.server import SourceServer

        return BullMQ(SourceServer(wanted.url), name, messages.shape("json", longest, body_as), prefix=prefix, waiting=waiting)

    return adopt(options, opened, wanted, unkeyed=messages.unkeyed)


@section.command(
    "rabbitmq-ttl",
    help="Move messages that wait in a queue of RabbitMQ until they are dead-lettered.\n\n"
    "Messages that expire meanwhile are dead-lettered as before, to the old consumers. A message is due when it would have "
    "been dead-lettered: when it came, by its timestamp or by x-death, and its expiration or the queue's --ttl. If it does not "
    "tell when it came, it is due a whole TTL from now: late, never early. What was taken is kept in a file until the queue "
    "has it.",
    examples=(
        ("bide adopt rabbitmq-ttl wait.15m --ttl 15m --topic t --dry-run", "only look"),
        ("bide adopt rabbitmq-ttl wait --topic t", "messages have an expiration"),
    ),
)
def rabbitmq_ttl(
    options: QueueOptions,
    queue: Annotated[str, typer.Argument(metavar="QUEUE", help="The queue with the TTL.", show_default=False)],
    run: RunOptions,
    messages: MessageOptions,
    *,
    ttl: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="The queue's x-message-ttl, if it has one.", rich_help_panel=SOURCE),
    ] = None,
    state: Annotated[
        str, typer.Option(metavar="FILE", help="Where what was taken is kept.", rich_help_panel=SOURCE)
    ] = "bide-adopt.db",
    by_routing_key: Annotated[
        bool, typer.Option("--topic-is-routing-key", help="A message's routing key is its topic.", rich_help_panel=MESSAGES)
    ] = False,
    anew: Annotated[
        bool,
        typer.Option(
            "--whole-ttl",
            help="Each message waits its whole TTL from now: for consumers that send messages again with the properties that "
            "they have received, which then do not tell when they came.",
            rich_help_panel=SOURCE,
        ),
    ] = False,
    body: Annotated[
        str,
        typer.Option(
            metavar="json|raw|FIELD",
            help="What the body is: the message's, as JSON or as text, or a field of its JSON.",
            rich_help_panel=MESSAGES,
        ),
    ] = "json",
    body_as: BodyAs = None,
    parse_body: ParseBody = False,
) -> int:
    if by_routing_key and (messages.topic is not None or messages.topic_field is not None):
        raise WrongUsage("Give either --topic-is-routing-key or a topic by --topic or --topic-field, not both.")
    messages.check(topic=not by_routing_key)
    wanted = run.run(RABBITMQ)
    longest = parse_duration(ttl, "--ttl")
    sources: list[TTLQueue] = []

    def opened(furthest: int) -> "AdoptSource":
        from bide.adopt.rabbitmq.notebook import Waits
        from bide.adopt.rabbitmq.ttl import opened as source

        known = None if longest is None else duration_ms(longest)
        waits = Waits(queue=queue, ttl=known, by_routing_key=by_routing_key, anew=anew)
        shape = messages.shape(body, furthest, body_as, parse_body=parse_body)
        made = source(wanted.url, waits, Path(state), shape, look_only=wanted.dry_run)
        sources.append(made)
        return made

    code = adopt(options, opened, wanted, unkeyed=messages.unkeyed)
    if guessed := sum(each.guessed for each in sources):
        will = "would be" if wanted.dry_run else "are"
        note(f"{plural(guessed, 'message')} did not tell when they came: they {will} due a whole TTL after they were taken.")
    return code
