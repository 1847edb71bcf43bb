"""Starts and stops a real Prometheus, which scrapes ports that tests name."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.servers.server import HOST, PATIENCE, Server


class PrometheusServer(Server):
    """For `with`: it scrapes each job's port every second, and evaluates the files of rules as often."""

    kind = "prometheus"

    def __init__(self, jobs: Mapping[str, int], rules: Sequence[Path] = (), every: str = "1s") -> None:
        super().__init__(PATIENCE)
        self._jobs = jobs
        self._rules = rules
        self._every = every

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Labels and value of each series, now."""
        found = self._ask("query", query=expression)["result"]
        return [(each["metric"], float(each["value"][1])) for each in found]

    def value(self, expression: str) -> float | None:
        """Of the one series; None while there is none."""
        found = self.query(expression)
        assert len(found) < 2, found
        return found[0][1] if found else None

    def over_time(
        self, expression: str, start: float, end: float, step: float
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        """Labels of each series, and its values at times in seconds since 1970."""
        found = self._ask("query_range", query=expression, start=str(start), end=str(end), step=str(step))["result"]
        return [(each["metric"], [(float(at), float(value)) for at, value in each["values"]]) for each in found]

    def alerts(self) -> dict[str, str]:
        """Each alert that is pending or firing, and which."""
        return {each["labels"]["alertname"]: each["state"] for each in self._ask("alerts")["alerts"]}

    def targets(self) -> dict[str, str]:
        """Of each job, how its last scrape went: "up", or why it did not."""
        found = self._ask("targets")["activeTargets"]
        return {each["labels"]["job"]: each["lastError"] or each["health"] for each in found}

    def _ask(self, what: str, **options: str) -> Any:
        url = f"http://{HOST}:{self.port}/api/v1/{what}?{urllib.parse.urlencode(options)}"
        try:
            with urllib.request.urlopen(url, timeout=self._patience) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{what} {options}: {error.read().decode()}") from None
        return told["data"]

    def _write_settings(self) -> None:
        jobs = [{"job_name": name, "static_configs": [{"targets": [f"{HOST}:{port}"]}]} for name, port in self._jobs.items()]
        settings = {
            "global": {"scrape_interval": self._every, "scrape_timeout": self._every, "evaluation_interval": self._every},
            "rule_files": [str(each) for each in self._rules],
            "scrape_configs": jobs,
        }
        (self.folder / "prometheus.yml").write_text(json.dumps(settings), encoding="utf-8")  # JSON is YAML

    def _command(self) -> Sequence[str]:
        return [
            "prometheus",
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address={HOST}:{self.port}",
            "--log.level=warn",
        ]

    def _port_was_taken(self, said: str) -> bool:
        return "address already in use" in said

    def _answers(self) -> bool:
        with suppress(OSError), urllib.request.urlopen(f"http://{HOST}:{self.port}/-/ready", timeout=1) as answer:
            return bool(answer.status == 200)
        return False
