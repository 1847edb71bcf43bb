"""The options of a send, each declared once: where it may be given, how the command line has it, what it means in a line.

`bide send`, the table in docs/messages.md and what is the same for all messages of a `send_many` follow from this. Signatures
and typed dicts are written out for editors and type checkers, the senders for other languages in SQL and Lua:
tests/unit/test_same_options.py compares them with this.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from bide.core import options
from bide.types import Duration, IfExists, Priority, Sent


class Carried(NamedTuple):
    """Of an option that no engine reads: it goes with the message in a header, through every engine, to its delivery.

    The envelope writes the header, for every way to send. It counts for no limit of the sender's own headers.
    """

    header: str  # begins with "bide-", so that it meets none of a user
    text: Callable[[Any], str]  # checks what was given, and makes the text of it


class Flag(NamedTuple):
    """How `bide send` has an option. Those that other commands have too are in cli/options.py."""

    name: str
    metavar: str | None = None  # of what has no choices
    help: str | None = None  # if it is another than the option's
    most: int | None = None  # of a whole number from 1 on


class SendOption(NamedTuple):
    """An option of `queue.send` and of a task's `options`, which have all of them."""

    name: str
    type: Any
    help: str
    default: Any = None
    needs: str | None = None  # the capability without which an engine can't do it
    later: bool = True  # `later` has it
    each: bool = True  # in a send_many each message may have its own, in an Outgoing
    many: bool = False  # a send_many has one for all of its messages
    after: bool = True  # `after` and `at` of a task have it
    foreign: bool = True  # senders in other languages have it: SQL of PostgreSQL, Lua of Redis
    flag: Flag | None = None  # None: `bide send` lacks it
    carried: Carried | None = None


ALL: tuple[SendOption, ...] = (
    SendOption("delay", Duration | None, 'How long to wait: 90 seconds, or "15m".', after=False, flag=Flag("--delay")),
    SendOption("at", datetime | None, "When it is due: a datetime with a timezone.", after=False, flag=Flag("--at")),
    SendOption("key", str | None, "Your name for the message until it ends.", needs="keys", flag=Flag("--key", "KEY")),
    SendOption(
        "if_exists", IfExists, "What to do if a message has the key already.", "keep", needs="keys", flag=Flag("--if-exists")
    ),
    SendOption(
        "max_wait",
        Duration | None,
        "With --if-exists later: due at the latest this long after the first send.",
        needs="keys",
        flag=Flag("--max-wait", "TIME"),
    ),
    SendOption(
        "unique_for",
        Duration | None,
        "With --key: send nothing if one was sent with it in this time.",
        needs="keys",
        flag=Flag("--unique-for", "TIME"),
    ),
    SendOption(
        "priority", Priority, "Priority among messages that are due.", "normal", needs="priority", flag=Flag("--priority")
    ),
    SendOption(
        "expires_in",
        Duration | None,
        "Drop the message if no worker takes it in this time after it is due.",
        flag=Flag("--expires-in", "TIME"),
    ),
    SendOption(
        "max_attempts",
        int | None,
        "Maximum number of attempts. Default: 3, or fewer if the task says so.",
        flag=Flag("--max-attempts", "N", most=options.MOST_ATTEMPTS),
    ),
    SendOption(
        "headers",
        Mapping[str, str] | None,
        "Texts with names, which come with the message.",
        flag=Flag("--header", "NAME=VALUE", "Header of the message. May be repeated."),
    ),
    SendOption(
        "operation",
        str | None,
        "Sending again with this name within 10 minutes adds nothing.",
        needs="idempotent",
        each=False,
        many=True,
        flag=Flag("--operation", "NAME"),
    ),
    SendOption(
        "connection",
        object | None,
        "The connection whose transaction the send joins.",
        needs="transactional",
        later=False,
        each=False,
        many=True,
        foreign=False,
    ),
    SendOption(
        "depends_on",
        Iterable[str | Sent] | None,
        "Messages of tasks with `keep=`: this one is due when all of them are done.",
        needs="results",
        later=False,
        each=False,
        after=False,
        foreign=False,
    ),
    SendOption(
        "deadline",
        Duration | None,
        "With `depends_on`: due at the latest after this time, which is a day by default.",
        needs="results",
        later=False,
        each=False,
        after=False,
        foreign=False,
    ),
)

OF_EACH = frozenset(each.name for each in ALL if each.each)
"""Those that each message of a send_many may have for itself."""

CARRIED: dict[str, Carried] = {each.name: each.carried for each in ALL if each.carried is not None}
"""Those that go with the message in a header, by name."""
