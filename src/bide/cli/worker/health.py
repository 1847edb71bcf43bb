"""A worker's health, told over HTTP, by a file that stays fresh, or to systemd."""

import asyncio
import contextlib
import os
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import typer

from bide.cli.http import HttpAnswer, HttpRequest, Port, port, served
from bide.logs import Log
from bide.worker.claim_log import Health

STALE = 15.0  # seconds that a loop may be busy with something else
FAILING = 60.0  # seconds that the engine may fail
EVERY = 5.0  # seconds between two writings of the file, or two lines for systemd
SOON = 0.1  # while all is not well
SECOND = 1_000_000  # of WATCHDOG_USEC

_log = Log("bide.worker")
Look = Callable[[], Mapping[int, Health]]


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


@contextlib.asynccontextmanager
async def told_to_systemd(look: Look, expected: int, environment: MutableMapping[str, str] = os.environ) -> AsyncIterator[None]:
    """While this lasts, systemd is told that the worker is ready and alive, if its unit wants to know: see sd_notify(3).

    Programs that handlers start are not to tell it anything, so they don't see where.
    """
    address, every = environment.pop("NOTIFY_SOCKET", ""), _every(environment)
    if not address:
        yield
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.setblocking(False)
        try:
            to.connect("\0" + address[1:] if address.startswith("@") else address)
        except OSError as error:
            _log.warning("systemd can't be told of the worker, as its socket %s is not there: %s", address, error)
            yield
            return
        telling = asyncio.get_running_loop().create_task(_keep_telling(to, look, expected, every))
        try:
            yield
        finally:
            telling.cancel()


def _every(environment: Mapping[str, str]) -> float:
    """Seconds. Of the time after which systemd takes the worker for stuck, a third."""
    told = environment.get("WATCHDOG_USEC", "")
    return min(EVERY, int(told) / SECOND / 3) if told.isdecimal() and int(told) else EVERY


async def _keep_telling(to: socket.socket, look: Look, expected: int, every: float) -> None:
    ready = False
    while True:
        said, alive = report(look(), expected), report(look(), expected, live=True)["ok"]
        ready = ready or said["ok"]
        lines = [f"STATUS={_status(said)}", *["READY=1"][: int(ready)], *["WATCHDOG=1"][: int(alive)]]
        with contextlib.suppress(OSError):  # systemd is restarted: it listens again in a moment
            to.send("\n".join(lines).encode())
        await asyncio.sleep(every if ready else min(every, SOON))


def _status(said: Mapping[str, object]) -> str:
    processes = said["processes"]
    assert isinstance(processes, list)
    running, done, failed = (sum(each[name] for each in processes) for name in ("running", "done", "failed"))
    return f"{'ready' if said['ok'] else 'not ready'}: {running:,} running, {done:,} done, {failed:,} failed"
