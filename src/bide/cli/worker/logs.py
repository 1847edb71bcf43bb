"""What the worker's log looks like: lines for people, or one JSON object a line for machines."""

import logging
import sys
from datetime import UTC, datetime
from typing import Any

from bide.cli.output.safe import escaped, json_text

_ABOUT = ("message_id", "topic", "attempt")


class Text(logging.Formatter):
    """For people: a message of several lines stays one; a traceback is shown as it is."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(process)d %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = escaped(record.message)
        return super().formatMessage(record)


class Json(logging.Formatter):
    """For machines: time, level, logger, process, message; message_id, topic, attempt and the traceback where there are any."""

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "process": record.process,
            "message": record.getMessage(),
        }
        said |= {name: value for name in _ABOUT if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            said["traceback"] = self.formatException(record.exc_info)
        return json_text(said)


def configure(log_format: str, level: str) -> None:
    """Log to standard error. A module that has set up logging by itself is left alone, unless JSON is asked for."""
    root = logging.getLogger()
    if root.handlers and log_format == "text":
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json() if log_format == "json" else Text())
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
