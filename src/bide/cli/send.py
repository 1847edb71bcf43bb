"""`bide send` and `script`: one message, or one for each line of a file; and how other languages send."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec
import typer

import bide
from bide.cli.exits import Exit, WrongUsage
from bide.cli.options import At, Delay, JsonLines, Section, lacking, parse_duration, parse_time
from bide.cli.output import due, echo, echo_json, now_ms
from bide.cli.queues import QueueOptions, complete_topics
from bide.cli.send_lines import BodyError, parse_body, send_lines
from bide.cli.send_records import Wanted, send_records
from bide.core import formats, send_options
from bide.core.send_options import OF_EACH, Flag, SendOption
from bide.errors import MissingExtra
from bide.types import Duration, IfExists, Outgoing, Priority

section: Section = Section("Messages")

OF_RECORDS = {"if_exists", "operation"}  # options that go with messages that another queue had
OFFERED = {each.name: (each, each.flag) for each in send_options.ALL if each.flag is not None}
_SHARED: dict[str, Any] = {"delay": Delay, "at": At}  # with other commands

_OUTCOMES = {
    "created": "",
    "kept": "has this key already, and was kept: ",
    "replaced": "has this key already, and got the new body and time: ",
    "postponed": "has this key already, and got the new body and the later time: ",
    "merged": "has this key already, and got the body at the end of its list: ",
    "duplicate": "was sent with this key not so long ago, and nothing was sent now: ",
}


class Chosen(dict[str, Any]):
    """The options of a send as a command line has them: a group of `Section.command`, each an option of the command."""

    _fields = tuple(OFFERED)
    _field_defaults: Mapping[str, object] = {name: option.default for name, (option, _) in OFFERED.items()}

    def __init__(self, *values: object) -> None:
        super().__init__(zip(OFFERED, values, strict=True))

    def said(self) -> set[str]:
        """The names of those that say something."""
        return {name for name, value in self.items() if value and value != self._field_defaults[name]}

    def message(self) -> Outgoing:
        """A message without a body."""
        wait, instant = parse_time(self["delay"], self["at"])
        read = {name: _read(*each, self[name]) for name, each in OFFERED.items() if name in OF_EACH and name not in _SHARED}
        return Outgoing(delay=wait, at=instant, **read)


def _hint(option: SendOption, flag: Flag) -> Any:
    """The type of an option for typer, with its flag and help."""
    kind: Any = option.type if option.type in (IfExists, Priority, int | None) else str | None
    if option.type == Mapping[str, str] | None:
        kind = list[str] | None
    told = f"{flag.help or option.help} {'' if option.needs is None else lacking(option.needs)}".rstrip()
    least = None if flag.most is None else 1
    return Annotated[kind, typer.Option(flag.name, metavar=flag.metavar, min=least, max=flag.most, help=told)]


def _read(option: SendOption, flag: Flag, written: Any) -> Any:
    """What a command line says, as a send has it."""
    if option.type == Duration | None:
        return parse_duration(written, flag.name)
    if option.type == Mapping[str, str] | None:
        return dict(_header(each) for each in written or ()) or None
    return written


Chosen.__annotations__ = {name: _SHARED.get(name) or _hint(*each) for name, each in OFFERED.items()}


@section.command(
    "send",
    help="Send one message, or one for each line of a file; or send what another queue had.\n\n"
    "The message is due now, after --delay or at --at. The body is JSON. Without a body, it is null.\n\n"
    "A whole file is checked before its first line is sent. Lines are sent in batches of 1,000. On SQLite and PostgreSQL, each "
    "batch is sent completely or not at all. On Redis and RabbitMQ, a part of a batch that fails may be sent.\n\n"
    "Without TOPIC, --from takes lines of `bide list --all --json`, each of which names its topic. The messages keep their "
    "key, due time, headers, priority and expiry, and the attempts that they have left. They get new ids. Within ten minutes, "
    "the same lines can be sent again: nothing is sent twice. RabbitMQ takes them twice.",
    examples=(
        ("bide send order.cancel '{\"order\": 42}' --delay 15m --key order:42", ""),
        ("bide send order.remind --at 2030-01-15T09:00:00+01:00", ""),
        ("bide send mail --text 'Hello there' --priority low", ""),
        ("bide send cart.forget --from carts.jsonl --delay 1h", "one body per line"),
        ("jq -c '.[]' orders.json | bide send order.pack -", "from a pipe"),
        ("bide send --from all.jsonl", "what bide list --all --json has printed"),
    ),
)
def send(
    options: QueueOptions,
    topic: Annotated[
        str | None,
        typer.Argument(
            metavar="TOPIC",
            help="Name of the topic. Without it, --from reads lines of `bide list --json`.",
            autocompletion=complete_topics,
            show_default=False,
        ),
    ] = None,
    body: Annotated[
        str | None, typer.Argument(metavar="BODY", help="Body as JSON. Use - to read one body per line from standard input.")
    ] = None,
    *,
    text: Annotated[bool, typer.Option("--text", help="BODY, or each line, is plain text, not JSON.")] = False,
    chosen: Chosen,
    source: Annotated[
        str | None, typer.Option("--from", metavar="FILE", help="Send each line of FILE. Use - for standard input.")
    ] = None,
    stdin: Annotated[bool, typer.Option("--stdin", help="Same as --from -.")] = False,
    leased: Annotated[
        bool, typer.Option("--leased", help="Without TOPIC: send messages that a worker had, too, due now.")
    ] = False,
    dead: Annotated[bool, typer.Option("--dead", help="Without TOPIC: send dead letters, too, due now.")] = False,
    as_json: JsonLines = False,
) -> int:
    operation = chosen["operation"]
    if topic is None:
        if text or chosen.said() - OF_RECORDS or not (source or stdin):
            raise WrongUsage("Give a TOPIC; or --from FILE alone, whose lines are those of `bide list --json`.")
        if chosen["if_exists"] == "merge":
            raise WrongUsage("--if-exists merge gathers single bodies: messages that another queue had are sent as they were.")
        return send_records(options, source or "-", Wanted(leased, dead, chosen["if_exists"], operation), as_json=as_json)
    if topic == "-" and body is None:
        raise WrongUsage(
            "Give a TOPIC before -, which reads one body per line; or --from - alone, with lines of `bide list --json`."
        )
    if leased or dead:
        raise WrongUsage("--leased and --dead are for lines of `bide list --json`: leave TOPIC out.")
    file = _file_of_bodies(body, source, stdin=stdin)
    message = chosen.message()
    if file is None:
        return _send_one(options, topic, _with_body(message, body, text=text), operation, as_json=as_json)
    if message.key is not None:
        raise WrongUsage("Only one message can have a key. Leave --key out to send many.")
    return send_lines(options, topic, file, message, operation, text=text, as_json=as_json)


def _send_one(options: QueueOptions, topic: str, message: Outgoing, operation: str | None, *, as_json: bool) -> int:
    with options.open(create=True) as queue:
        sent = queue.send(topic, **msgspec.structs.asdict(message), operation=operation)
    if as_json:
        echo_json(formats.sent(sent))
    else:
        echo(f"{sent.id}  {_OUTCOMES.get(sent.outcome, sent.outcome + ': ')}due {due(sent.due, now_ms())}")
    return Exit.OK


def _file_of_bodies(body: str | None, source: str | None, *, stdin: bool) -> str | None:
    """The file that has one body per line. None if there is one message."""
    files = {each for each in (source, "-" if stdin else None, "-" if body == "-" else None) if each is not None}
    if not files:
        return None
    if len(files) > 1 or body not in (None, "-"):
        raise WrongUsage("Give either BODY or a file of bodies, not both.")
    return files.pop()


def _with_body(message: Outgoing, body: str | None, *, text: bool) -> Outgoing:
    try:
        return message if body is None else msgspec.structs.replace(message, body=parse_body(body, text=text))
    except BodyError as error:
        raise typer.BadParameter(
            f"{error}. Quote JSON for the shell: '{{\"order\": 42}}'. Quote a text twice, '\"text\"', or add --text.",
            param_hint="BODY",
        ) from None


def _header(written: str) -> tuple[str, str]:
    name, mark, value = written.partition("=")
    if not mark or not name:
        raise typer.BadParameter("Write it as name=value.", param_hint="--header")
    return name, value


of_system: Section = Section("System")


@of_system.command(
    "script",
    help="Print the Lua script by which programs in other languages send messages through Redis.\n\n"
    "The script is complete: run it with EVAL, redis-cli --eval, or your client's way to define a command. Its first lines say "
    "which keys and arguments it takes. Print it again when you update bide.",
    examples=(("bide script send > send.lua", ""),),
)
def script(
    name: Annotated[Literal["send"], typer.Argument(help="What the script does: send one message.")],
) -> int:
    try:
        from bide.engines.redis.script import send_script
    except ModuleNotFoundError as missing:
        raise MissingExtra(f'The script needs the package {missing.name}: pip install "bide[redis]"') from missing
    echo(f"-- bide {bide.__version__}")
    for line in send_script().splitlines():
        echo(line)
    return Exit.OK
