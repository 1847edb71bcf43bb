"""Writes the dashboards of Grafana in deploy/grafana: `python -m tools.dashboards`. With `--check` it says whether they are as
written here.

A panel has a title, its expressions with their legends, a unit of Grafana's, and what an operator should know of it.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parents[1] / "deploy/grafana"
COLUMNS = 24
HEIGHTS: Mapping[str, int] = {"stat": 4, "timeseries": 8}
SHARES: Mapping[str, float] = {"median": 0.5, "95 %": 0.95, "99 %": 0.99}
SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Panel(NamedTuple):
    title: str
    queries: Mapping[str, str]  # legend: expression
    unit: str = "short"
    about: str = ""
    kind: str = "timeseries"
    width: int = 8
    bad: float | None = None  # from this on, a number is red
    stack: bool = False


class Row(NamedTuple):
    title: str
    panels: Sequence[Panel]


def _rate(metric: str, by: str, topic: str, more: str = "") -> str:
    return f"sum by ({by}) (rate({metric}{{{topic}{more}}}[$__rate_interval]))"


def _quantiles(metric: str, label: str) -> Mapping[str, str]:
    buckets = f"sum by (le) (rate({metric}_bucket{{{label}}}[$__rate_interval]))"
    return {name: f"histogram_quantile({share}, {buckets})" for name, share in SHARES.items()}


def _most(metric: str, by: str) -> str:
    return f"histogram_quantile(0.95, sum by ({by}, le) (rate({metric}_bucket[$__rate_interval])))"


def _due(within: int, topic: str = "") -> str:
    return f'sum(bide_due_within_messages{{{topic}within="{within}"}})'


def _by_topic(expression: str) -> Mapping[str, str]:
    """The ten largest."""
    return {"{{topic}}": f"topk(10, {expression})"}


def _failed(topic: str) -> str:
    bad, all_ = (
        f'sum by (topic) (rate(bide_ended_total{{{topic}outcome=~"{outcomes}"}}[$__rate_interval]))'
        for outcomes in ("retried|dead", "done|retried|dead")
    )
    return f"{bad} / {all_}"


DUE: Mapping[str, int] = {"within 1 minute": 60, "within 5 minutes": 300, "within 1 hour": 3600, "within 1 day": 86400}
COMING = "Messages that fall due from now on."
WAVE = "Due in the next 5 minutes, done in the last 5 minutes"
AHEAD = "If what is due stays far above what was done, start workers before it comes."
TOLD = "Processes that told of themselves in the last 15 seconds. Releases before 0.2.0 tell nothing."
FULL = "Without a free one, messages wait."
LATE = "How long a message has been due that nobody has received."

OPERATOR: Sequence[Row] = (
    Row(
        "Now",
        (
            Panel("Oldest overdue", {"": "max(bide_oldest_overdue_seconds)"}, "s", LATE, "stat", 4, 60),
            Panel("Workers", {"": "sum(bide_workers)"}, about=TOLD, kind="stat", width=4),
            Panel("Due, and served by none", {"": "sum(bide_unhandled)"}, kind="stat", width=4, bad=1),
            Panel("Dead letters", {"": 'sum(bide_messages{state="dead"})'}, kind="stat", width=4, bad=1),
            Panel("Due within 5 minutes", {"": _due(300)}, kind="stat", width=4),
            Panel("Exporter", {"": "min(bide_scrape_success)"}, about="1: the queue could be looked at.", kind="stat", width=4),
        ),
    ),
    Row(
        "What comes",
        (
            Panel("Falls due", {name: _due(within) for name, within in DUE.items()}, about=COMING, width=12),
            Panel(
                WAVE, {"due": _due(300), "done": 'sum(increase(bide_ended_total{outcome="done"}[5m]))'}, about=AHEAD, width=12
            ),
            Panel(
                "Due within 5 minutes, by topic",
                _by_topic('sum by (topic) (bide_due_within_messages{within="300"})'),
                width=12,
            ),
            Panel(
                "Next instants of schedules",
                {"{{schedule}}": "min by (schedule) (bide_schedule_next_seconds)"},
                "s",
                "Below 0: late.",
                width=12,
            ),
        ),
    ),
    Row(
        "What waits",
        (
            Panel("Overdue, by topic", _by_topic("max by (topic) (bide_oldest_overdue_seconds) > 0"), "s"),
            Panel("Messages by state", {"{{state}}": "sum by (state) (bide_messages)"}, stack=True),
            Panel("Dead letters, by topic", _by_topic('sum by (topic) (bide_messages{state="dead"}) > 0')),
        ),
    ),
    Row(
        "What is done",
        (
            Panel(
                "Attempts that ended, a second", {"{{outcome}}": _rate("bide_ended_total", "outcome", "")}, "ops", stack=True
            ),
            Panel("Sent, a second", {"{{outcome}}": _rate("bide_sent_total", "outcome", "")}, "ops", stack=True),
            Panel("Attempts that failed", _by_topic(f"{_failed('')} > 0"), "percentunit"),
            Panel("Lateness", _quantiles("bide_lateness_seconds", ""), "s", "From the due time of a message to its delivery."),
            Panel("Run time, 95 %, by topic", _by_topic(_most("bide_run_seconds", "topic")), "s"),
            Panel("Places for handlers", {"{{state}}": "sum by (state) (bide_slots)"}, about=FULL, stack=True),
        ),
    ),
    Row(
        "The engine",
        (
            Panel("Calls, 95 %", {"{{verb}}": _most("bide_engine_call_seconds", "verb")}, "s"),
            Panel(
                "Calls that failed, a second",
                {"{{verb}}: {{error}}": _rate("bide_engine_errors_total", "verb, error", "")},
                "ops",
            ),
            Panel("A look at the queue", {"{{instance}}": "bide_scrape_seconds"}, "s"),
        ),
    ),
)

_TOPIC = 'topic=~"$topic"'


def _state(state: str, bad: float | None = None) -> Panel:
    return Panel(state.capitalize(), {"": f'sum(bide_messages{{{_TOPIC},state="{state}"}})'}, kind="stat", width=4, bad=bad)


TOPIC: Sequence[Row] = (
    Row(
        "Now",
        (
            Panel("Oldest overdue", {"": f"max(bide_oldest_overdue_seconds{{{_TOPIC}}})"}, "s", LATE, "stat", 4, 60),
            *(_state(state) for state in ("scheduled", "ready", "leased")),
            _state("dead", bad=1),
            Panel("Paused", {"": f"max(bide_paused{{{_TOPIC}}})"}, kind="stat", width=4, bad=1),
        ),
    ),
    Row(
        "What comes",
        (
            Panel("Falls due", {name: _due(within, f"{_TOPIC},") for name, within in DUE.items()}, about=COMING, width=12),
            Panel(
                WAVE,
                {
                    "due": _due(300, f"{_TOPIC},"),
                    "done": f'sum(increase(bide_ended_total{{{_TOPIC},outcome="done"}}[5m]))',
                },
                about=AHEAD,
                width=12,
            ),
        ),
    ),
    Row(
        "What is done",
        (
            Panel(
                "Attempts that ended, a second",
                {"{{outcome}}": _rate("bide_ended_total", "outcome", _TOPIC)},
                "ops",
                stack=True,
            ),
            Panel("Sent, a second", {"{{outcome}}": _rate("bide_sent_total", "outcome", _TOPIC)}, "ops", stack=True),
            Panel("Attempts that failed", {"{{topic}}": _failed(f"{_TOPIC},")}, "percentunit"),
            Panel("Lateness", _quantiles("bide_lateness_seconds", _TOPIC), "s"),
            Panel("Run time", _quantiles("bide_run_seconds", _TOPIC), "s"),
            Panel("Running", {"{{topic}}": f"sum by (topic) (bide_running{{{_TOPIC}}})"}),
        ),
    ),
)

DASHBOARDS: Mapping[str, tuple[str, Sequence[Row]]] = {"bide": ("bide", OPERATOR), "bide-topic": ("bide: a topic", TOPIC)}


def dashboard(uid: str, title: str, rows: Iterable[Row]) -> dict[str, Any]:
    variables: list[dict[str, Any]] = [
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
    ]
    if uid == "bide-topic":
        asked = 'label_values({__name__=~"bide_messages|bide_begun_total"}, topic)'
        variables.append(
            {
                "name": "topic",
                "label": "Topic",
                "type": "query",
                "datasource": SOURCE,
                "query": asked,
                "definition": asked,
                "refresh": 2,
                "sort": 1,
                "includeAll": True,
                "allValue": ".*",
                "multi": True,
            }
        )
    return {
        "uid": uid,
        "title": title,
        "tags": ["bide"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": variables},
        "links": [{"title": "bide", "type": "dashboards", "tags": ["bide"], "keepTime": True}],
        "panels": list(_placed(rows)),
    }


def _placed(rows: Iterable[Row]) -> Iterable[dict[str, Any]]:
    """From left to right, and a new line where there is no room."""
    number = top = 0
    for row in rows:
        number += 1
        yield {
            "id": number,
            "type": "row",
            "title": row.title,
            "collapsed": False,
            "panels": [],
            "gridPos": _grid(0, top, COLUMNS, 1),
        }
        top, left, height = top + 1, 0, 0
        for panel in row.panels:
            if left + panel.width > COLUMNS:
                top, left = top + height, 0
            number, height = number + 1, HEIGHTS[panel.kind]
            yield _panel(number, panel, _grid(left, top, panel.width, height))
            left += panel.width
        top += height


def _grid(x: int, y: int, w: int, h: int) -> dict[str, int]:
    return {"x": x, "y": y, "w": w, "h": h}


def _panel(number: int, panel: Panel, grid: dict[str, int]) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "text" if panel.kind == "stat" else "green", "value": None}]
    if panel.bad is not None:
        steps.append({"color": "red", "value": panel.bad})
    custom = {"fillOpacity": 30, "stacking": {"mode": "normal"}} if panel.stack else {"fillOpacity": 5}
    options = {
        "stat": {"reduceOptions": {"calcs": ["lastNotNull"]}},
        "timeseries": {"tooltip": {"mode": "multi", "sort": "desc"}},
    }
    return {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": SOURCE,
        "gridPos": grid,
        "fieldConfig": {
            "defaults": {
                "unit": panel.unit,
                "min": None if "schedules" in panel.title else 0,
                "custom": custom,
                "thresholds": {"mode": "absolute", "steps": steps},
            },
            "overrides": [],
        },
        "options": options[panel.kind],
        "targets": [
            {"refId": chr(ord("A") + place), "datasource": SOURCE, "expr": expression, "legendFormat": legend or "__auto"}
            for place, (legend, expression) in enumerate(panel.queries.items())
        ],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.dashboards", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check = parser.parse_args().check
    old = []
    for uid, (title, rows) in DASHBOARDS.items():
        path, text = FOLDER / f"{uid}.json", json.dumps(dashboard(uid, title, rows), indent=1) + "\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            old.append(path.name)
            if not check:
                path.write_text(text, encoding="utf-8")
    if check and old:
        print(f"{', '.join(old)}: not as tools/dashboards.py has it. `python -m tools.dashboards` writes it.")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
