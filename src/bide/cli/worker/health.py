"""What a worker tells outside: its health, over HTTP or by a file that stays fresh, and the formats of its log."""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import typer

from bide.cli.http import HttpAnswer, HttpRequest, Port, port, served
from bide.cli.output import escaped, is_unicode, json_text
from bide.logs import Log
from bide.worker.claim_log import Health

STALE = 15.0  # seconds that a loop may be busy with something else
FAILING = 60.0  # seconds that the engine may fail
EVERY = 5.0  # seconds between two writings of the file
SOON = 0.1  # while all is not well

_log = Log("bide.worker")
Look = Callable[[], Mapping[int, Health]]
_ABOUT = ("message_id", "topic", "attempt")


def report(processes: Mapping[int, Health], expected: int, *, live: bool = False) -> dict[str, Any]:
    """The report. It is ok if every process is ready: it is there, its event loop runs, and its engine was reached and answers.

    `live` asks for less: that no event loop is blocked. A restart helps neither an engine that is away nor a process that the
    supervisor is about to replace.
    """
    now = time.monotonic()
    told = [
        {
            "process": pid,
            "ok": _live(each, now) if live else _ready(each, now),
            "running": each.running,
            "done": each.done,
            "failed": each.failed,
            "unhandled": each.unhandled,
            "unconfirmed": each.unconfirmed,
        }
        for pid, each in processes.items()
    ]
    return {"ok": (live or len(told) == expected) and all(each["ok"] for each in told), "processes": told}


def _live(health: Health, now: float) -> bool:
    return not health.seen or now - health.seen < STALE  # one that was not seen has not reached its engine yet


def _ready(health: Health, now: float) -> bool:
    return now - health.seen < STALE and not (health.failing_since and now - health.failing_since > FAILING)


Endpoint: TypeAlias = Port | Path | None


def endpoint(where: str | None) -> Endpoint:
    """Parse --health: `:8080`, `127.0.0.1:8080` or `[::1]:8080`, or a file in a folder that exists."""
    if where is None:
        return None
    if not where.strip():
        raise typer.BadParameter("It is empty. Give :PORT or a file, or leave --health out.", param_hint="--health")
    if where.isdecimal():
        raise typer.BadParameter(f"For a port write :{where}, for a file ./{where}.", param_hint="--health")
    _, mark, number = where.rpartition(":")
    if not mark or "/" in where:
        return _file(where)
    if not number.isdecimal():
        raise typer.BadParameter(f"{number!a} is not a port. For a file write ./{where}.", param_hint="--health")
    return port(where, "--health")


@contextlib.asynccontextmanager
async def reported(where: Endpoint, look: Look, expected: int) -> AsyncIterator[None]:
    """While this lasts, the port answers 200 or 503, or the file is written while all is well."""
    if where is None:
        yield
    elif isinstance(where, Port):
        async with served(where, "--health", partial(_answer, look, expected)) as number:
            _log.info("Health is told at port %d: GET /live and /ready.", number)
            yield
    else:
        writing = asyncio.get_running_loop().create_task(_keep_writing(where, look, expected))
        try:
            yield
        finally:
            writing.cancel()
            with contextlib.suppress(OSError):
                where.unlink()


def _answer(look: Look, expected: int, asked: HttpRequest) -> HttpAnswer:
    """What is not asked for by its name is whether it is ready."""
    return health_answer(look, expected, live=asked.path.rstrip("/") == "/live")


def health_answer(look: Look, expected: int, *, live: bool) -> HttpAnswer:
    said = report(look(), expected, live=live)
    return HttpAnswer(
        "200 OK" if said["ok"] else "503 Service Unavailable", "application/json", msgspec.json.encode(said) + b"\n"
    )


async def _keep_writing(path: Path, look: Look, expected: int) -> None:
    """Keep the file fresh while the worker is healthy. An old or missing file means that it is not."""
    part = path.with_name(path.name + ".part")
    failing = False
    while True:
        said = report(look(), expected)
        if said["ok"]:
            try:
                part.write_bytes(msgspec.json.encode(said) + b"\n")
                os.replace(part, path)
                failing = False
            except OSError as error:
                if not failing:
                    _log.error("The file of --health can't be written; trying again: %s", error)
                failing = True
                with contextlib.suppress(OSError):
                    part.unlink()
        await asyncio.sleep(EVERY if said["ok"] and not failing else SOON)


def _file(where: str) -> Path:
    path = Path(where).absolute()
    if not path.parent.is_dir():
        raise typer.BadParameter(f"There is no folder {path.parent} for the file.", param_hint="--health")
    return path


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
