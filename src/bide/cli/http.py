"""A port at which a command answers simple requests over HTTP: health, metrics. Nobody signs in, and nothing can be changed."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple, TypeAlias

import typer

from bide.errors import ConfigError
from bide.logs import Log

TIMEOUT = 10.0  # seconds for a request and its answer
_log = Log("bide.worker")
_GONE = (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, asyncio.CancelledError)


class Port(NamedTuple):
    """Where a command listens. Without a host, on every address of the machine."""

    host: str | None
    number: int

    def __str__(self) -> str:
        host = self.host or ""
        return f"[{host}]:{self.number}" if ":" in host else f"{host}:{self.number}"


class HttpRequest(NamedTuple):
    """The names of headers are in small letters, and the path is without its query."""

    method: str
    path: str
    headers: dict[str, str]


class HttpAnswer(NamedTuple):
    """The status has its number and its words."""

    status: str
    content_type: str
    body: bytes


Answers: TypeAlias = Callable[[HttpRequest], HttpAnswer | Awaitable[HttpAnswer] | None]
"""None: there is nothing at this path. What takes its time is to be awaited."""


def port(where: str, option: str) -> Port:
    """Parse `:8080`, `127.0.0.1:8080` or `[::1]:8080`."""
    host, _, number = where.rpartition(":")
    if not (number.isdecimal() and number.isascii()):
        raise typer.BadParameter(f"{number!a} is not a port: write 8080, :8080 or 127.0.0.1:8080.", param_hint=option)
    if int(number) > 65_535:
        raise typer.BadParameter(f"There is no port {number}. The highest is 65535.", param_hint=option)
    return Port(host.removeprefix("[").removesuffix("]") or None, int(number))


@contextlib.asynccontextmanager
async def served(where: Port, option: str, answers: Answers) -> AsyncIterator[int]:
    """While this lasts, requests at the port are answered. Gives its number, which the system chooses for 0."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(TIMEOUT):
                asked = _parsed(await reader.readuntil(b"\r\n\r\n"))
                found = answers(asked) or _nothing(asked)
                said = found if isinstance(found, HttpAnswer) else await found
                writer.write(_written(said, head=asked.method == "HEAD"))
                await writer.drain()
        except _GONE:
            pass
        except Exception:
            _log.exception("A request could not be answered")
            writer.write(_written(text("500 Internal Server Error", "The log says why."), head=False))
        finally:
            writer.close()

    try:
        server = await asyncio.start_server(answer, where.host, where.number)
    except (OSError, UnicodeError) as error:  # UnicodeError: of a name that can't be one
        reason = getattr(error, "strerror", None) or error
        raise ConfigError(f"{option} can't listen at {where}: {reason}.") from None
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()  # clients that are still connected are not waited for


def text(status: str, said: str) -> HttpAnswer:
    return HttpAnswer(status, "text/plain; charset=utf-8", said.encode() + b"\n")


def _nothing(asked: HttpRequest) -> HttpAnswer:
    return text("404 Not Found", f"There is nothing at {asked.path}.")


def _parsed(request: bytes) -> HttpRequest:
    first, *lines = request.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    return HttpRequest(method, rest.partition(" ")[0].partition("?")[0], headers)


def _written(answer: HttpAnswer, *, head: bool) -> bytes:
    lines = (
        f"HTTP/1.1 {answer.status}",
        f"Content-Type: {answer.content_type}",
        f"Content-Length: {len(answer.body)}",
        "Connection: close",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
    )
    return "\r\n".join((*lines, "", "")).encode() + (b"" if head else answer.body)
