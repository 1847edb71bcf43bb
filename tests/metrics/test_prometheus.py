"""What a real Prometheus makes of bide's metrics, and of the rules and dashboards in deploy/."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.metrics.scraped import ask, scrape, value
from tests.servers.programs import needs_program
from tests.servers.prometheus import PrometheusServer
from tests.servers.server import free_port
from tests.worker.processes import Shop, open_shop, until

pytestmark = pytest.mark.server

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
RULES = DEPLOY / "prometheus/bide.rules.yml"
OTHERS = {"job", "instance", "le", "error"}  # labels that Prometheus adds, that make a histogram, of what has not happened
HANDLERS = """
@queue.task("mail")
async def mail():
    pass

@queue.task("fails", max_attempts=1)
async def fails():
    raise ValueError

@queue.every("0 3 * * *", name="report")
async def report():
    pass
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    needs_program("prometheus")
    with open_shop(tmp_path) as made:
        made.write(HANDLERS)
        yield made


def expressions() -> Iterator[str]:
    """Of all rules and of all panels, with what Grafana would put in them."""
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        yield from (rule["expr"] for rule in group["rules"])
    for path in sorted((DEPLOY / "grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel.get("targets", ()):
                yield target["expr"].replace("$__rate_interval", "1m").replace("$topic", "mail|fails")


def told(page: str) -> tuple[set[str], set[str]]:
    """The names of series on a page, also of those that have none yet; and its labels."""
    names = set()
    for name, kind in re.findall(r"^# TYPE (\w+) (\w+)$", page, re.MULTILINE):
        names |= {f"{name}_bucket", f"{name}_count", f"{name}_sum"} if kind == "histogram" else {name}
    return names, set(re.findall(r'[{,](\w+)="', page))


def used(expression: str) -> tuple[set[str], set[str]]:
    """The names of metrics and the labels that an expression asks for."""
    names = set(re.findall(r"\bbide_\w+", expression))
    labels = set(re.findall(r'[{,]\s*(\w+)\s*=~?"', expression))
    for some in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", expression):
        labels |= {each.strip() for each in some.split(",")}
    return names, labels


def test_prometheus_reads_all_that_rules_and_dashboards_ask_for(shop: Shop, exporter: Any) -> None:
    shop.queue.send_many("mail", [None] * 20)
    for _ in range(3):
        shop.queue.send("mail", delay="2m")
    shop.queue.send_many("fails", [None] * 2)
    shop.queue.send("nobody", 1)
    workers = free_port()
    worker = shop.start("--metrics", str(workers), "--processes", "2")
    shop.dead("fails", count=2)
    until(lambda: ask(workers, "/ready")[0] == 200)
    queues = exporter(shop.url)
    scrape(queues)
    with PrometheusServer({"bide-queue": queues, "bide-workers": workers}, [RULES]) as prometheus:
        until(lambda: prometheus.targets() == {"bide-queue": "up", "bide-workers": "up"}, lambda: str(prometheus.targets()))
        until(lambda: prometheus.value('sum(bide_ended_total{topic="mail",outcome="done"})') == 20)
        until(lambda: prometheus.value('bide_due_within_messages{topic="mail",within="300"}') == 3)
        until(lambda: prometheus.value('bide_messages{topic="fails",state="dead"}') == 2)
        until(lambda: prometheus.value("bide_workers") == 2)
        until(lambda: prometheus.value('bide_unhandled{topic="nobody"}') == 1)
        until(lambda: 0 < (prometheus.value('bide_schedule_next_seconds{schedule="report"}') or 0) <= 86_400)
        until(lambda: prometheus.value("bide_scrape_success") == 1)
        late = prometheus.query("histogram_quantile(0.5, sum by (topic, le) (bide_lateness_seconds_bucket))")
        assert {labels["topic"] for labels, _ in late} >= {"mail", "fails"}
        # a rule of deploy/ finds what it is about; it fires after its minutes
        until(lambda: prometheus.alerts().get("BideUnhandled") == "pending", lambda: str(prometheus.alerts()))
        # and all expressions ask for what one of the pages has
        pages = [told(ask(port)[2]) for port in (workers, queues)]
        names, labels = (set[str]().union(*parts) for parts in zip(*pages, strict=True))
        for expression in expressions():
            prometheus.query(expression)
            asked, by = used(expression)
            assert asked <= names, expression
            assert by <= labels | OTHERS, expression
    assert worker.stop()[0] == 0


def test_promtool_takes_pages_rules_and_settings(shop: Shop, exporter: Any) -> None:
    def checked(*command: str, page: str = "") -> str:
        ended = subprocess.run(
            ["promtool", *command], input=page, cwd=DEPLOY / "prometheus", capture_output=True, text=True, check=False
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout + ended.stderr

    assert "9 rules found" in checked("check", "rules", RULES.name)
    assert "is valid" in checked("check", "config", "prometheus.yml")
    assert "SUCCESS" in checked("test", "rules", "bide.tests.yml")
    shop.queue.send_many("mail", [None] * 20)
    port = free_port()
    shop.start("--metrics", str(port))
    until(lambda: value(scrape(port), "bide_ended_total", topic="mail", outcome="done") == 20)
    queues = exporter(shop.url)
    scrape(queues)
    for each in (port, queues):
        assert checked("check", "metrics", page=ask(each)[2]) == ""


def test_each_alert_is_tested() -> None:
    [group] = yaml.safe_load(RULES.read_text())["groups"]
    tests = (DEPLOY / "prometheus/bide.tests.yml").read_text()
    for rule in group["rules"]:
        assert f'alertname="{rule["alert"]}"' in tests, rule["alert"]
