"""The page that Prometheus reads, in the format that it asks for."""

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector


def registry(*collectors: Collector) -> CollectorRegistry:
    """One of its own: it tells of nothing else that is in this process."""
    made = CollectorRegistry(auto_describe=False)
    for each in collectors:
        made.register(each)
    return made


def page(metrics: CollectorRegistry, accept: str) -> tuple[str, bytes]:
    """The content type and the text, for what a client accepts."""
    encoder, content_type = choose_encoder(accept)
    return content_type, encoder(metrics)
