"""How `bide worker` logs: as text or as JSON, unless the user's program has set up logging itself."""

import logging
import sys
import threading
from datetime import UTC, datetime
from typing import Any

from bide.cli.output import escaped, is_unicode, json_text

_ABOUT = ("message_id", "topic", "attempt")


class Text(logging.Formatter):
    """Text. A message of several lines is written as one line. A traceback keeps its lines."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = escaped(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        return "\n".join(map(escaped, super().formatException(ei).split("\n")))


class JsonFormatter(logging.Formatter):
    """JSON: time, level, logger, process, message; message_id, topic, attempt and the traceback where there are any."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": _encodable(record.getMessage()),
        }
        said |= {name: value for name in _ABOUT if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            said["traceback"] = _encodable(self.formatException(record.exc_info))
        return json_text(said, ascii_only=not is_unicode(sys.stderr))


def _encodable(text: str) -> str:
    """Escape lone surrogates: Python reads file names that are not UTF-8 as such, and JSON can't hold them."""
    return text.encode("utf-8", "backslashreplace").decode()


def configure(log_format: str, level: str) -> None:
    """Log to standard error. If a user's module has set up logging, that is kept, unless JSON is asked for."""
    root = logging.getLogger()
    if root.handlers and log_format == "text":
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else Text())
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logging.getLogger("aiormq").setLevel(logging.CRITICAL)  # it logs lost connections with tracebacks, and bide tells of them
    if log_format == "json":  # Python's own warnings and tracebacks would not be JSON
        logging.captureWarnings(True)
        threading.excepthook = _log_thread_end


def _log_thread_end(ended: threading.ExceptHookArgs) -> None:
    name = "A thread" if ended.thread is None else f"The thread {ended.thread.name}"
    trace = None if ended.exc_value is None else (ended.exc_type, ended.exc_value, ended.exc_traceback)
    logging.getLogger("threading").error("%s has ended with %s", name, ended.exc_type.__name__, exc_info=trace)
