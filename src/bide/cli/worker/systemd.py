"""Tells systemd that the worker is ready and alive, if it was started by a unit that wants to know: see sd_notify(3)."""

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping, MutableMapping

from bide.cli.worker.health import Look, report
from bide.logs import Log

EVERY = 5.0  # seconds between two lines of status
SOON = 0.1  # until it is ready
SECOND = 1_000_000  # of WATCHDOG_USEC

_log = Log("bide.worker")


@contextlib.asynccontextmanager
async def told(look: Look, expected: int, environment: MutableMapping[str, str] = os.environ) -> AsyncIterator[None]:
    """While this lasts, systemd is told. Programs that handlers start are not to tell it anything, so they don't see where."""
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
