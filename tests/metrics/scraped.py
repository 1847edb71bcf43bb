"""Reads what a port tells to Prometheus, with the parser of Prometheus's own client."""

import http.client
from typing import TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from tests.worker.processes import PATIENCE, until

Series: TypeAlias = tuple[str, frozenset[tuple[str, str]]]
Samples: TypeAlias = dict[Series, float]


def parsed(text: str) -> Samples:
    """Each series once, or the page is wrong."""
    found: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            series = sample.name, frozenset(sample.labels.items())
            assert series not in found, f"{series} is told twice"
            found[series] = sample.value
    return found


def value(samples: Samples, name: str, **labels: str) -> float | None:
    return samples.get((name, frozenset(labels.items())))


def counters(samples: Samples) -> Samples:
    """What may never fall."""
    return {series: each for series, each in samples.items() if series[0].endswith(("_total", "_bucket", "_count", "_sum"))}


def ask(port: int, path: str = "/metrics", method: str = "GET", **headers: str) -> tuple[int, str, str]:
    """The status, the content type and the text; 0 while nobody answers."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type") or "", answer.read().decode()
    except ConnectionRefusedError:
        return 0, "", ""
    finally:
        connection.close()


def scrape(port: int) -> Samples:
    status, _, text = until(lambda: told if (told := ask(port))[0] else None)
    assert status == 200, text
    return parsed(text)
