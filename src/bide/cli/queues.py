"""The queue, and the message, that a command is about."""

import os
import threading
from typing import TYPE_CHECKING, NamedTuple

import typer

from bide.cli.exits import Exit, WrongUsage
from bide.cli.output import note
from bide.errors import ConfigError
from bide.types import CancelResult, Info, RescheduleResult

if TYPE_CHECKING:
    from bide.queue import Queue


NOWHERE = "sqlite:///bide.db"  # where a queue is that nothing names
OTHERWISE = "Your program makes it when it first sends. To name another queue: --url, --url-file or $BIDE_URL."
COMPLETION_TIMEOUT = 2.0  # seconds that somebody who pressed Tab will wait
ID_LENGTH = 16  # characters of the shortest id


class QueueOptions(NamedTuple):
    """What --url, --url-file and --namespace say."""

    url: str | None = None
    url_file: str | None = None
    namespace: str | None = None

    def queue(self) -> "Queue":
        """The queue, whatever its engine is. Nothing is opened yet."""
        return self._queue(self._chosen_url())

    def open(self, *, create: bool = False, otherwise: str = OTHERWISE) -> "Queue":
        """A queue that outlives this command. A file or tables that are not there are made only with `create`.

        `otherwise`: what to do if there is no file.
        """
        url = self._chosen_url()
        if not create and url.startswith(("postgres://", "postgresql://")):
            url += f"{'&' if '?' in url else '?'}migrate=0"
        elif not create and url.startswith(("amqp://", "amqps://")):
            url += f"{'&' if '?' in url else '?'}make=0"
        queue = self._queue(url)
        if not queue.capabilities.persistent:
            raise ConfigError("Messages in memory:// are lost when this command ends. Give the URL of another queue.")
        file = _sqlite_file(url)
        if file is not None and not create and not os.path.exists(file):
            raise ConfigError(f"There is no queue at {file} yet. {otherwise}")
        return queue

    def _chosen_url(self) -> str:
        """The URL, which is never shown, as it may hold a password. A file is read only once, as it may be a pipe."""
        if self.url is not None and self.url_file is not None:
            raise WrongUsage("Give either --url or --url-file, not both.")
        if self.url_file is not None:
            return first_line(self.url_file)
        from bide.queue.setup import of_environment

        return self.url if self.url is not None else of_environment() or NOWHERE

    def _queue(self, url: str) -> "Queue":
        from bide.queue import Queue

        named = () if url is NOWHERE else (url,)  # a queue says itself that it is nowhere in particular
        if self.namespace is None:
            return Queue(*named)
        queue = Queue(*named, namespace=self.namespace)
        used = queue.session.setup.source.namespace
        if used != self.namespace:  # the URL's comes first, and no option is ignored in silence
            raise ConfigError(f"The URL has the namespace {used}, but --namespace is {self.namespace}. Leave one of them out.")
        return queue


def complete_topics(ctx: typer.Context, incomplete: str) -> list[str]:
    """The topics that begin so, for the shell's completion. Nothing is made, and an error is the same as no topic."""
    import bide.queue  # noqa: F401 - the import takes its time but can't hang, so the timeout is not for it

    found: list[str] = []
    options = QueueOptions(*(ctx.params.get(name) for name in QueueOptions._fields))

    def look() -> None:
        try:
            with options.open() as queue:
                found.extend(queue.topics())
        except Exception:
            return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(COMPLETION_TIMEOUT)
    return [each for each in found if each.startswith(incomplete) and each.isprintable()]


def _sqlite_file(url: str) -> str | None:
    """The path of an SQLite file. None for another engine."""
    if not url.startswith("sqlite://"):
        return None
    from bide.engines.sqlite.file import path_of

    return path_of(url)


def first_line(path: str, option: str = "--url-file") -> str:
    """The URL in a file that an option names."""
    try:
        with open(path, encoding="utf-8") as file:
            line = file.readline(5_000).strip()
    except UnicodeDecodeError:
        raise ConfigError(f"{option} {path} is not a text file. Its first line must be the URL.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not a valid file name"
        raise ConfigError(f"{option} {path} can't be read: {reason}.") from None
    if not line:
        raise ConfigError(f"{option} {path} has an empty first line. It must be the URL.")
    return line


CODES = {"RUNNING": Exit.RUNNING, "DEAD": Exit.DEAD, "GONE": Exit.GONE}
ENDS = (
    "Exit code 0: {done}. 3: RUNNING, a worker has the message. 4: GONE, the message has ended or was never sent. "
    "6: DEAD, the message is a dead letter."
)


class Target(NamedTuple):
    """The message that a command is about: named by its id, or by its topic and --key."""

    name: str
    key: str | None

    @property
    def id(self) -> str | None:
        return self.name if self.key is None else None

    @property
    def topic(self) -> str | None:
        return None if self.key is None else self.name

    def note_if_no_id(self, queue: "Queue") -> None:
        """Say how to name a message, if this is the name of a topic or perhaps a key."""
        if self.key is not None:
            return
        if queue.capabilities.inspect and self.name in queue.topics():
            note(f"bide: {self.name} is a topic. Give the id of a message, or the topic and a key: {self.name} --key KEY")
        elif len(self.name) < ID_LENGTH:
            note(f"bide: {self.name} is not an id. If it is a key, give its topic, too: TOPIC --key {self.name}")

    def __str__(self) -> str:
        return f"Message {self.name}" if self.key is None else f"The message with key {self.key!r} in {self.name}"


def refused(result: CancelResult | RescheduleResult, target: Target, dead: Info | None) -> str:
    """Why nothing was changed, and what to do."""
    if result.name == "RUNNING":
        return f"RUNNING: {target} was not changed, because a worker has it."
    if result.name == "DEAD":
        topic = "TOPIC" if dead is None else dead.topic
        return (
            f"DEAD: {target} is a dead letter. `bide requeue {topic} {target.id}` delivers it again, "
            f"`bide purge {topic} {target.id}` deletes it."
        )
    return f"GONE: {target} has ended, or was never sent."
