"""How `bide worker` logs: as text or as JSON, unless the user's program has set up logging itself."""

import contextlib
import logging
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from bide.cli.output import escaped, is_unicode, json_text

_ABOUT = (
    *("message_id", "message_ids", "topic", "attempt", "outcome", "seconds", "done", "failed", "given_back"),
    *("trace_id", "span_id"),
)


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
    """JSON: time, level, logger, process and message; then what is known of: what bide says of the message, the ids of
    OpenTelemetry's current span, and the traceback.
    """

    def format(self, record: logging.LogRecord) -> str:
        said: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": _encodable(record.name),
            "process": record.process,
            "message": _encodable(_message(record)),
        }
        said |= _span()
        said |= {name: value for name in _ABOUT if (value := _plain(getattr(record, name, None))) is not None}
        if record.exc_info:
            said["traceback"] = _encodable(self.formatException(record.exc_info))
        return json_text(said, ascii_only=not is_unicode(sys.stderr))


def _message(record: logging.LogRecord) -> str:
    """Also of a call whose arguments do not fit: logging would print some lines of text."""
    try:
        return record.getMessage()
    except Exception as error:
        return f"{record.msg!r} with the arguments {record.args!r}: {type(error).__name__}: {error}"


def _plain(value: object) -> object:
    """What bide says of a message is of these types. An attribute of the same name may be the program's own: None of others."""
    if isinstance(value, list):
        return [_encodable(each) for each in value if isinstance(each, str)]
    return _encodable(value) if isinstance(value, str) else value if isinstance(value, int | float) else None


def _encodable(text: str) -> str:
    """Escape lone surrogates: Python reads file names that are not UTF-8 as such, and JSON can't hold them."""
    return text.encode("utf-8", "backslashreplace").decode()


def _span() -> dict[str, str]:
    """Of OpenTelemetry, where the program uses it: it is not imported for a log line."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return {}
    try:
        span = trace.get_current_span().get_span_context()
        return {"trace_id": f"{span.trace_id:032x}", "span_id": f"{span.span_id:016x}"} if span.is_valid else {}
    except Exception:  # it is still being imported, or a tracer of the program's own fails: the line is worth more than its ids
        return {}


@contextlib.contextmanager
def importing(log_format: str) -> Iterator[None]:
    """While the user's modules are imported, which may set up logging: until then there is no handler that would stop them.

    Python prints warnings and errors that have no handler: with this, as JSON if that is asked for.
    """
    usual = logging.lastResort
    if log_format == "json":
        logging.lastResort = _handler(log_format)
        logging.lastResort.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logging.lastResort = usual


def configure(log_format: str, level: str) -> str | None:
    """Log to standard error, unless the user's program has set up logging: then nothing is changed. What to say of that."""
    for name, logger in logging.root.manager.loggerDict.items():
        # dictConfig() disables all loggers that are there and that it does not name; those of bide are, as nowhere else
        if name.partition(".")[0] == "bide" and isinstance(logger, logging.Logger):
            logger.disabled = False
    root = logging.getLogger()
    if root.handlers:
        return _left_out(log_format, level)
    root.addHandler(_handler(log_format))
    root.setLevel(level.upper())
    if not logging.getLogger("aiormq").level:
        logging.getLogger("aiormq").setLevel(
            logging.CRITICAL
        )  # it logs lost connections with tracebacks, and bide tells of them
    if log_format == "json":  # Python's own warnings and tracebacks would not be JSON
        logging.captureWarnings(True)
        threading.excepthook = _log_thread_end
        sys.unraisablehook = _log_unraisable
    return None


def _left_out(log_format: str, level: str) -> str | None:
    asked = ["--log-format json"] * (log_format == "json") + [f"--log-level {level}"] * (level != "info")
    if not asked:
        return None
    what = " and ".join(asked)
    return f"bide: your program has set up logging itself, so {what} {'is' if len(asked) == 1 else 'are'} left out."


def _handler(log_format: str) -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if log_format == "json" else Text())
    return handler


def _log_thread_end(ended: threading.ExceptHookArgs) -> None:
    name = "A thread" if ended.thread is None else f"The thread {ended.thread.name}"
    trace = None if ended.exc_value is None else (ended.exc_type, ended.exc_value, ended.exc_traceback)
    logging.getLogger("threading").error("%s has ended with %s", name, ended.exc_type.__name__, exc_info=trace)


def _log_unraisable(ignored: "sys.UnraisableHookArgs") -> None:
    """What is raised where nobody can catch it, such as in `__del__`."""
    trace = None if ignored.exc_value is None else (ignored.exc_type, ignored.exc_value, ignored.exc_traceback)
    logging.getLogger("python").error("%s: %r", ignored.err_msg or "Exception ignored in", ignored.object, exc_info=trace)
