"""An application that tells metrics, for ASGI and for WSGI."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from bide.errors import BadOption
from bide.metrics.counts import TOPICS
from bide.metrics.queue import QueueMetrics
from bide.queue import AsyncQueue, Queue
from bide.types import Duration

Scope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
StartResponse: TypeAlias = Callable[[str, list[tuple[str, str]]], object]

_HEADERS = (("Cache-Control", "no-store"), ("X-Content-Type-Options", "nosniff"))


def registry(*collectors: Collector) -> CollectorRegistry:
    """One of its own: it tells of nothing else that is in this process."""
    made = CollectorRegistry(auto_describe=False)
    for each in collectors:
        if not hasattr(each, "collect"):
            raise BadOption(f"Metrics come from collectors such as ProcessMetrics(), and one is a {type(each).__name__}.")
        made.register(each)
    return made


class Pages:
    """Pages of metrics. They are made in a thread of their own: those of the event loop may all be taken."""

    def __init__(self, metrics: CollectorRegistry) -> None:
        self._metrics = metrics
        self._thread = ThreadPoolExecutor(1, "bide-metrics-page")

    def page(self, accept: str) -> tuple[str, bytes]:
        """The content type and the text, for what a client accepts."""
        try:
            encoder, content_type = choose_encoder(accept)
        except Exception:  # of a header that nothing can be made of
            encoder, content_type = choose_encoder("")
        return content_type, encoder(self._metrics)

    async def told(self, accept: str) -> tuple[str, bytes]:
        """The same, while the event loop goes on: a look at a queue may take seconds, and a page of many topics some time."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self.page, accept)


class MetricsApp:
    """What `app` returns: an ASGI application; `.wsgi` is the same for WSGI.

    Every path answers, as the application is mounted where its user wants it.
    """

    def __init__(self, *collectors: Collector) -> None:
        self._pages = Pages(registry(*collectors))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await _lifespan(receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"Metrics are told over HTTP, and this is a request of type {scope['type']}.")
        accept = b",".join(value for name, value in scope["headers"] if name.lower() == b"accept").decode("latin-1")
        status, content_type, body = 405, "text/plain; charset=utf-8", b"Ask with GET.\n"
        if scope["method"] in ("GET", "HEAD"):
            status, (content_type, body) = 200, await self._pages.told(accept)
        headers = [("Content-Type", content_type), ("Content-Length", str(len(body))), *_HEADERS]
        raw = [(name.lower().encode(), value.encode()) for name, value in headers]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def wsgi(self, environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        """The same for WSGI."""
        status, content_type, body = "405 Method Not Allowed", "text/plain; charset=utf-8", b"Ask with GET.\n"
        method = environ["REQUEST_METHOD"]
        if method in ("GET", "HEAD"):
            status = "200 OK"
            content_type, body = self._pages.page(environ.get("HTTP_ACCEPT", ""))
        start_response(status, [("Content-Type", content_type), ("Content-Length", str(len(body))), *_HEADERS])
        return [] if method == "HEAD" else [body]


async def _lifespan(receive: Receive, send: Send) -> None:
    while (await receive())["type"] != "lifespan.shutdown":
        await send({"type": "lifespan.startup.complete"})
    await send({"type": "lifespan.shutdown.complete"})


def app(queue: Queue | AsyncQueue, *collectors: Collector, every: Duration = "10s", topics: int = TOPICS) -> MetricsApp:
    """Make an ASGI application that tells the metrics of a queue, and those of other collectors such as ProcessMetrics.

    `app(queue).wsgi` is the same for WSGI. The options are those of QueueMetrics.
    """
    return MetricsApp(QueueMetrics(queue, every=every, topics=topics), *collectors)
