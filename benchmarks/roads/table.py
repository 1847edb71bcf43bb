"""The tables of docs/roads.md, from the figures that are kept."""

from benchmarks.peers.summary import Middle, middle
from benchmarks.roads.results import QUOTED, Results, load
from benchmarks.roads.ways import ALL_WAYS, Way
from benchmarks.roads.works import BURST, RATE, SPREAD

GROUPS = {
    "redis": "Redis",
    "postgres": "PostgreSQL",
    "rabbitmq": "RabbitMQ",
    "none": "in the process",
    "file": "a file",
}
WORTH = 100.0  # bytes in the consumer, below which they are the noise of its memory
NONE = "–"


def table(results: Results, machine: str) -> str:
    """A way a line: medians, to decide by."""
    rows = [
        [
            "way",
            "where",
            "may lose",
            "late, p50 / p99, ms",
            "sent a second",
            "handled a second",
            "bytes a waiting message",
            "idle: CPU, %",
            "commands a second",
        ]
    ]
    rows += [_row(way, results) for way in ALL_WAYS if way.name in results]
    rounds = max(len(each) for each in results.values())
    return f"{_table(rows)}\nMedians of {rounds} rounds on {machine}. `python -m benchmarks.roads` prints this table.\n"


def spreads(results: Results) -> str:
    """The same with the lowest and highest round."""
    whats = ("p50 ms", "p99 ms", "sent a second", "handled a second")
    rows = [
        ["way", "late, p50, ms", "late, p99, ms", "sent a second", "handled a second", f"not handled, of {SPREAD + BURST:,}"]
    ]
    for way in ALL_WAYS:
        if way.name in results:
            missing = [each["not handled"] + each["burst not handled"] for each in results[way.name]]
            cells = [_spread(middle([each[what] for each in results[way.name]])) for what in whats]
            rows.append([_title(way), *cells, f"{max(missing):.0f}"])
    text = f"Medians, and the lowest and highest round; lateness at {RATE:.0f} messages a second."
    return f"{text}\n\n{_table(rows)}"


def head() -> str:
    """The table at the head of the page."""
    return table(*load(QUOTED))


def rounds() -> str:
    """The table of its spreads."""
    return spreads(load(QUOTED)[0])


def _row(way: Way, results: Results) -> list[str]:
    def of(what: str) -> float | None:
        values = [figures[what] for figures in results[way.name] if what in figures]
        return middle(values).median if values else None

    commands = of("commands a second")
    cpu = sum(of(f"CPU of the {what}, %") or 0.0 for what in ("consumer", "server"))
    return [
        way.title,
        GROUPS[way.server],
        way.loses,
        f"{_plain(of('p50 ms'))} / {_plain(of('p99 ms'))}",
        _plain(of("sent a second")),
        _plain(of("handled a second")),
        _bytes(of("bytes stored") or 0.0, of("bytes in the consumer") or 0.0),
        f"{cpu:.1f}",
        NONE if commands is None else _plain(commands),
    ]


def _bytes(stored: float, held: float) -> str:
    """Stored by the server, and held by the consumer."""
    if not stored:
        return _plain(held)
    return _plain(stored) if held < WORTH else f"{_plain(stored)} + {_plain(held)}"


def _title(way: Way) -> str:
    """Without its link."""
    return way.title.replace("**", "").replace("[", "").partition("](")[0]


def _table(rows: list[list[str]]) -> str:
    rows = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _spread(found: Middle) -> str:
    return f"{_plain(found.median)} ({_plain(found.low)}–{_plain(found.high)})"


def _plain(value: float | None) -> str:
    """Two digits are all that such figures bear, and three where they are large."""
    if value is None:
        return NONE
    if value >= 100:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}"
