"""The pictures of docs/observing.md: `python -m benchmarks.observing`, in ten minutes.

A real Prometheus scrapes a worker of two processes and `bide metrics`, while messages are sent, handlers fail for some time,
and the worker is gone for some time while a wave falls due. Then Prometheus is asked what it has seen.
"""

import argparse
import math
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.chart import Band, Chart, Line
from bide import Outgoing, Queue
from tests.servers.prometheus import PrometheusServer
from tests.servers.redis import RedisServer
from tests.servers.server import free_port

ROOT = Path(__file__).resolve().parents[1]
PICTURES = ROOT / "docs/observing"
RULES = ROOT / "deploy/prometheus/bide.rules.yml"
EVERY_DAY = 40  # messages a second
WAVE = 12_000
STEP = 2.0  # seconds between two points
SHOP = """
import asyncio, os
from bide import AsyncQueue, steps

queue = AsyncQueue({url!r})


@queue.task("order.cancel", max_attempts=2, backoff=steps("10s"))
async def cancel(order: int) -> None:
    await asyncio.sleep(0.5)
    if os.path.exists({broken!r}):
        raise ConnectionError("the shop's database is away")
"""


class Shop:
    """What is sent, and what goes wrong when: as parts of the whole time."""

    FAILS = 0.2, 0.32
    GONE = 0.45, 0.6
    WAVE_AT = 0.55, 0.62

    def __init__(self, url: str, folder: Path, seconds: float) -> None:
        self.url = url
        self.folder = folder
        self.seconds = seconds
        self.began = time.time()
        self.metrics = free_port()
        self._broken = folder / "broken"
        (folder / "shop.py").write_text(SHOP.format(url=url, broken=str(self._broken)))

    def at(self, part: float) -> float:
        return self.began + part * self.seconds

    @contextmanager
    def worker(self) -> Iterator[None]:
        command = [sys.executable, "-m", "bide", "worker", "shop:queue", "--processes", "2", "--metrics", str(self.metrics)]
        with subprocess.Popen(command, cwd=self.folder, stderr=subprocess.DEVNULL) as process:
            try:
                yield
            finally:
                process.terminate()

    def live(self) -> None:
        """All of it, from the first message to the last."""
        over = threading.Event()
        sending = threading.Thread(target=self._send, args=[over])
        sending.start()
        with self.worker():
            _until(self.at(self.FAILS[0]))
            self._broken.touch()
            _until(self.at(self.FAILS[1]))
            self._broken.unlink()
            _until(self.at(self.GONE[0]))
        _until(self.at(self.GONE[1]))
        with self.worker():
            _until(self.at(1.0))
        over.set()
        sending.join()

    def _send(self, over: threading.Event) -> None:
        with Queue(self.url) as queue:
            first, last = (self.at(part) for part in self.WAVE_AT)
            wave = [Outgoing({"order": order}, delay=random.uniform(first, last) - time.time()) for order in range(WAVE)]
            for some in range(0, WAVE, 1_000):
                queue.send_many("order.cancel", wave[some : some + 1_000])
            while not over.wait(1.0):
                queue.send_many("order.cancel", [Outgoing({"order": 1}, delay=random.uniform(5, 60)) for _ in range(EVERY_DAY)])


def _until(instant: float) -> None:
    time.sleep(max(0.0, instant - time.time()))


def _rules(folder: Path) -> Path:
    """Those of deploy/, with shorter times: what takes hours there has to happen in minutes."""
    text = RULES.read_text()
    for usual, short in (("for: 5m", "for: 20s"), ("[10m]", "[1m]"), ("offset 10m", "offset 1m"), ("[1h]", "[2m]")):
        text = text.replace(usual, short)
    (folder / "rules.yml").write_text(text)
    return folder / "rules.yml"


def _line(prometheus: PrometheusServer, shop: Shop, name: str, expression: str) -> Line:
    found = prometheus.over_time(expression, shop.at(0), shop.at(1), STEP)
    return Line(name, [(at - shop.began, value) for _, points in found for at, value in points if not math.isnan(value)])


def _alerts(prometheus: PrometheusServer, shop: Shop) -> list[Band]:
    """When each was firing, from the first to the last moment."""
    found = prometheus.over_time('max by (alertname) (ALERTS{alertstate="firing"})', shop.at(0), shop.at(1), STEP)
    return [Band(labels["alertname"], points[0][0] - shop.began, points[-1][0] - shop.began) for labels, points in found]


def charts(prometheus: PrometheusServer, shop: Shop) -> Sequence[tuple[str, Chart]]:
    def line(name: str, expression: str) -> Line:
        return _line(prometheus, shop, name, expression)

    troubles = [
        Band("handlers fail", *(part * shop.seconds for part in shop.FAILS)),
        Band("no worker", *(part * shop.seconds for part in shop.GONE)),
    ]
    coming = [
        line("due within 1 minute", 'sum(bide_due_within_messages{within="60"})'),
        line("due within 5 minutes", 'sum(bide_due_within_messages{within="300"})'),
        line("due, and not begun", 'sum(bide_messages{state="ready"})'),
    ]
    late = [
        line("oldest overdue", "max(bide_oldest_overdue_seconds)"),
        line("lateness, 95 %", "histogram_quantile(0.95, sum by (le) (rate(bide_lateness_seconds_bucket[20s])))"),
    ]
    ended = [
        line("done", 'sum(rate(bide_ended_total{outcome="done"}[10s]))'),
        line("retried", 'sum(rate(bide_ended_total{outcome="retried"}[10s]))'),
        line("dead", 'sum(rate(bide_ended_total{outcome="dead"}[10s]))'),
    ]
    alerts = _alerts(prometheus, shop)
    return [
        ("coming", Chart("What falls due, in messages", coming, troubles)),
        ("late", Chart("How late, in seconds", late, troubles)),
        ("ended", Chart("What has ended, a second, and alerts", ended, troubles, alerts)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.observing", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long it lasts")
    parser.add_argument("--to", type=Path, default=PICTURES, help="the folder of the pictures")
    given = parser.parse_args()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bide-observing-")))
        url = stack.enter_context(RedisServer()).url
        exporter, shop = free_port(), Shop(url, folder, given.minutes * 60)
        command = [sys.executable, "-m", "bide", "metrics", url, "--port", str(exporter)]
        process = stack.enter_context(subprocess.Popen(command, stderr=subprocess.DEVNULL))
        stack.callback(process.terminate)
        jobs = {"bide-queue": exporter, "bide-workers": shop.metrics}
        prometheus = stack.enter_context(PrometheusServer(jobs, [_rules(folder)]))
        print(f"Load for {given.minutes:g} minutes.")
        shop.live()
        given.to.mkdir(exist_ok=True)
        for name, chart in charts(prometheus, shop):
            (given.to / f"{name}.svg").write_text(chart.svg(shop.seconds))
            print(f"Written: {given.to / name}.svg")
    return 0


if __name__ == "__main__":
    sys.exit(main())
