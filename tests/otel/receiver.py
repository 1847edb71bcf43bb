"""A small receiver of the OpenTelemetry protocol over HTTP: what has arrived, decoded from its protobuf."""

import gzip
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

KINDS = ("unspecified", "internal", "server", "client", "producer", "consumer")


class ReceivedSpan(NamedTuple):
    name: str
    kind: str
    trace: str
    id: str
    parent: str  # empty: none
    links: list[tuple[str, str]]  # trace and span
    attributes: dict[str, Any]
    failed: bool
    begin: int  # ns
    end: int
    schema: str
    service: str


class Received:
    def __init__(self) -> None:
        self.url: str = ""
        self.spans: list[ReceivedSpan] = []
        self.text: str = ""  # all of the traces, to be searched
        self.metrics: dict[str, Any] = {}  # the last of each, as it came

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            told = ExportTraceServiceRequest.FromString(body)
            self.text += str(told)
            for of_resource in told.resource_spans:
                service = _plain(of_resource.resource.attributes).get("service.name", "")
                for scope in of_resource.scope_spans:
                    self.spans += [_span(each, scope.schema_url, service) for each in scope.spans]
        elif path == "/v1/metrics":
            for of_resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for scope in of_resource.scope_metrics:
                    self.metrics |= {each.name: each for each in scope.metrics}

    def named(self, name: str) -> list[ReceivedSpan]:
        """In the order in which they began."""
        return sorted((each for each in self.spans if each.name == name), key=lambda each: each.begin)

    def traces(self) -> set[str]:
        return {each.trace for each in self.spans}

    def points(self, name: str) -> list[tuple[dict[str, Any], Any]]:
        """Attributes and value of each point of a metric; of a histogram the count."""
        metric = self.metrics[name]
        data = getattr(metric, metric.WhichOneof("data"))
        return [(_plain(each.attributes), _value_of(each)) for each in data.data_points]


@contextmanager
def receiver() -> Iterator[Received]:
    received = Received()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.take(self.path, gzip.decompress(body) if self.headers.get("Content-Encoding") == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        received.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield received
        finally:
            server.shutdown()
            thread.join()


def _span(span: Any, schema: str, service: str) -> ReceivedSpan:
    return ReceivedSpan(
        name=span.name,
        kind=KINDS[span.kind],
        trace=span.trace_id.hex(),
        id=span.span_id.hex(),
        parent=span.parent_span_id.hex(),
        links=[(each.trace_id.hex(), each.span_id.hex()) for each in span.links],
        attributes=_plain(span.attributes),
        failed=span.status.code == 2,
        begin=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        schema=schema,
        service=service,
    )


def _plain(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}


def _value_of(point: Any) -> Any:
    return point.count if hasattr(point, "bucket_counts") else getattr(point, point.WhichOneof("value"))
