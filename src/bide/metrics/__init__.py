"""Metrics for Prometheus: of processes, and of queues."""

from bide.errors import MissingExtra

try:
    from bide.metrics.app import MetricsApp, app
    from bide.metrics.process import ProcessMetrics
    from bide.metrics.queue import QueueMetrics
except ModuleNotFoundError as _missing:
    if _missing.name != "prometheus_client":
        raise
    raise MissingExtra('Metrics need the package prometheus_client: pip install "bide[metrics]"') from _missing

__all__ = ["MetricsApp", "ProcessMetrics", "QueueMetrics", "app"]
