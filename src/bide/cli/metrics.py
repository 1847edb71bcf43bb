"""`bide metrics`: what a queue holds and what falls due when, at a port for Prometheus."""

import asyncio
import contextlib
import signal
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Annotated

import typer

from bide.cli.exits import Exit
from bide.cli.http import Answers, HttpAnswer, HttpRequest, Port, served, text
from bide.cli.http import port as parsed
from bide.cli.options import Section
from bide.cli.output import note
from bide.cli.queues import QueueOptions

if TYPE_CHECKING:
    from bide.metrics.app import Pages
    from bide.queue import AsyncQueue, Queue

section: Section = Section("System")


@section.command(
    "metrics",
    help="Serve metrics of a queue for Prometheus, at /metrics: what is there, and what falls due when.\n\n"
    "It tells of messages by state, of the oldest that is overdue, and how many fall due within a minute, five minutes, an "
    "hour and a day. One process is enough, however many workers and scrapers there are. Name the queue by a URL, or by "
    "MODULE:QUEUE in a Python module.",
    examples=(
        ("bide metrics redis://localhost", "GET http://localhost:9464/metrics"),
        ("bide metrics shop:queue --port 127.0.0.1:9000", "of a queue in a module, on this machine only"),
    ),
    needs="inspect",
)
def metrics(
    options: QueueOptions,
    queue_path: Annotated[
        str | None, typer.Argument(metavar="URL|MODULE:QUEUE", help="The queue. Default: as --url says.")
    ] = None,
    *,
    port: Annotated[str, typer.Option("--port", metavar="PORT", help="Port, or HOST:PORT.")] = "9464",
    topics: Annotated[
        int, typer.Option("--topics", metavar="N", min=1, max=10_000, help="Topics with labels of their own.")
    ] = 200,
) -> int:
    at = parsed(port, "--port")
    queue = _queue(options, queue_path)
    return asyncio.run(_serve(at, _answers(queue, topics), queue.session.setup.source.shown))


def _queue(options: QueueOptions, path: str | None) -> "Queue | AsyncQueue":
    if path is None:
        return options.open()
    if "://" in path and options.url is options.url_file is None:
        return options._replace(url=path).open()
    if any(options):
        raise typer.BadParameter("Name the queue once: by a URL, by MODULE:QUEUE, or by --url and --namespace.")
    if "@" in path or ":/" in path or "//" in path:  # not shown, as there may be a password in it
        raise typer.BadParameter("This is no URL of an engine, such as redis://HOST or postgres://USER@HOST/DATABASE.")
    from bide.cli.worker.load import WorkerOptions, load_target
    from bide.worker import Worker

    found = load_target(WorkerOptions(path))
    return found.queue if isinstance(found, Worker) else found


def _answers(queue: "Queue | AsyncQueue", topics: int) -> Answers:
    from bide.metrics import QueueMetrics
    from bide.metrics.app import Pages, registry

    pages = Pages(registry(QueueMetrics(queue, topics=topics)))

    def answer(asked: HttpRequest) -> HttpAnswer | Awaitable[HttpAnswer] | None:
        if asked.method not in ("GET", "HEAD"):
            return text("405 Method Not Allowed", "Ask with GET.")
        if asked.path.rstrip("/") != "/metrics":
            return None
        return told_page(pages, asked)

    return answer


async def told_page(pages: "Pages", asked: HttpRequest) -> HttpAnswer:
    """In the form that the client accepts: OpenMetrics, or the text of Prometheus."""
    return HttpAnswer("200 OK", *await pages.told(asked.headers.get("accept", "")))


async def _serve(at: Port, answers: Answers, shown: str) -> int:
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, stopping.set)
    async with served(at, "--port", answers) as chosen:
        note(f"Metrics of {shown} are told at port {chosen}: GET /metrics. Ctrl-C ends it.")
        await stopping.wait()
    return Exit.OK
