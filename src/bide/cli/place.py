"""Where messages live: from --url, --url-file, $BIDE_URL, or the file bide.db in this folder, to a queue."""

import os
from typing import TYPE_CHECKING, NamedTuple

import typer

from bide.errors import ConfigError

if TYPE_CHECKING:
    from bide.queue import Queue

DEFAULT = "sqlite:///bide.db"


class Place(NamedTuple):
    """What the options say."""

    url: str | None = None
    url_file: str | None = None
    namespace: str | None = None

    def any_queue(self) -> "Queue":
        """The queue, wherever it is. Nothing is opened yet."""
        return self._queue(self._chosen())

    def queue(self, *, make: bool = False) -> "Queue":
        """A queue that outlives this command. An SQLite file that is not there is made only if asked for."""
        url = self._chosen()
        queue = self._queue(url)
        if not queue.capabilities.persistent:
            raise ConfigError("What is in memory:// is gone when this command ends: name a place that lasts, with --url.")
        file = _file(url)
        if file is not None and not make and not os.path.exists(file):
            raise ConfigError(
                f"There is no queue at {file} yet. `bide send` makes one; or say where it is: --url, --url-file or $BIDE_URL."
            )
        return queue

    def _chosen(self) -> str:
        """The URL that was asked for. It may hold a password, so it is never shown; a file is read once: it may be a pipe."""
        if self.url is not None and self.url_file is not None:
            raise typer.BadParameter("Give one of them: the URL, or the file that it is in.", param_hint="--url / --url-file")
        if self.url_file is not None:
            return _first_line(self.url_file)
        return self.url if self.url is not None else os.environ.get("BIDE_URL", DEFAULT)

    def _queue(self, url: str) -> "Queue":
        from bide.queue import Queue

        if self.namespace is None:
            return Queue(url)
        queue = Queue(url, namespace=self.namespace)
        self._heeded(queue.session.setup.source.namespace)
        return queue

    def _heeded(self, used: str) -> None:
        """What somebody typed is never passed over in silence."""
        if self.namespace not in (None, used):
            raise ConfigError(f"The URL names the namespace {used}, and --namespace {self.namespace}: leave one of them out.")


def _file(url: str) -> str | None:
    """The path of an SQLite file; None when messages live elsewhere."""
    if not url.startswith("sqlite://"):
        return None
    from bide.engines.sqlite.file import path_of

    return path_of(url)


def _first_line(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            line = file.readline(5_000).strip()
    except UnicodeDecodeError:
        raise ConfigError(f"--url-file {path} is not text: its first line should be the URL.") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no file name"
        raise ConfigError(f"--url-file {path} can't be read: {reason}.") from None
    if not line:
        raise ConfigError(f"--url-file {path} begins with an empty line: its first line should be the URL.")
    return line
