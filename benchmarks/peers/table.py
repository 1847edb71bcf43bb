"""The tables of docs/comparison.md, from the figures that are kept."""

from collections.abc import Callable, Iterator, Mapping

from benchmarks.peers.registry import BIDE, PEERS
from benchmarks.peers.results import Results
from benchmarks.peers.summary import Middle, Rounds, bide_of
from benchmarks.peers.works import BACK, CRASH

RATE = "a second"
TITLES = {
    "single": "Sent one by one, with a delay",
    "batch": "Sent in batches, each message with a time of its own",
    "drain": "Drain: messages that are due already",
    "burst": "Burst: messages that fall due at one instant",
}
NOTHING = "–"

Row = list[str]


def tables(results: Results, machine: str) -> str:
    """All that stands in the generated part of the page."""
    texts = [f"Measured on: {machine}.\n", _ratios(results)]
    texts += [_rates(work, results[work]) for work in TITLES if work in results]
    texts += [make(results[work]) for work, make in OTHERS.items() if work in results]
    return "\n".join([*texts, _settings()])


def _ratios(results: Results) -> str:
    """How many times as fast bide is, at a glance."""
    rows = [["", "one by one", "batches", "drain", "burst"]]
    for peer in PEERS.values():
        ratios = [_ratio(results.get(work, {}).get(peer.name)) for work in TITLES]
        rows.append([peer.title, *ratios])
    return _headed("Ratios", "how many times as fast as the peer bide is: the median of the ratios in each round", rows, "")


def _ratio(rounds: Rounds | None) -> str:
    found = rounds.ratio(RATE) if rounds else None
    return f"{_plain(found.median)} ×" if found else NOTHING


def _rates(work: str, found: Mapping[str, Rounds]) -> str:
    rows = [["", "a second", "bide beside it", "bide is … times as fast"]]
    for peer in PEERS.values():
        rounds = found.get(peer.name)
        if rounds is None:
            continue
        how = f" ({peer.batch})" if work == "batch" else ""
        rows.append([peer.title + how, _spread(rounds.of(RATE)), _spread(rounds.ours(RATE)), _spread(rounds.ratio(RATE))])
    overall = f"messages a second, in {_rounds(found)}; bide over all rounds: {_spread(bide_of(found, RATE))}"
    if plain := bide_of(found, "plain"):
        overall += f", and {_spread(plain)} of messages without a time"
    return _headed(TITLES[work], overall, rows, work)


def _lateness(found: Mapping[str, Rounds]) -> str:
    rows = [["", "p50 ms", "p99 ms", "latest ms", "early"]]
    for title, each in _with_bide(found):
        early, earliest = each.of("early"), each.of("lowest ms")
        assert early is not None
        assert earliest is not None
        told = f"{_plain(early.median)}, by up to {_plain(-earliest.low)} ms" if early.high else "none"
        rows.append([title, *(_spread(each.of(what)) for what in ("p50 ms", "p99 ms", "highest ms")), told])
    text = f"2,000 messages spread over 20 s, one worker, handled so long after their time; in {_rounds(found)}"
    return _headed("Lateness", text, rows, "lateness")


def _memory(found: Mapping[str, Rounds]) -> str:
    rows = [["", "bytes a message", "of these, overhead"]]
    for title, each in _with_bide(found):
        size = each.of("bytes")
        assert size is not None
        rows.append([title, f"{size.median:,.0f}", f"{size.median - 100:,.0f}"])
    return _headed("Memory", "Redis's memory for a pending message with a payload of 100 bytes", rows, "memory")


def _idle(found: Mapping[str, Rounds]) -> str:
    rows = [["", "commands a second"]]
    rows += [[title, _spread(each.of("commands a second"))] for title, each in _with_bide(found)]
    text = (
        "one idle worker, 10,000 messages pending; the commands inside scripts are counted; the settings are those of lateness"
    )
    return _headed("Idle", text, rows, "idle")


def _crash(found: Mapping[str, Rounds]) -> str:
    rows = [["", "held when killed", f"of {CRASH}, not handled in {BACK:.0f} s", "done twice", "held ones were back after"]]
    for title, each in _with_bide(found):
        counts = [_count(each.of(what)) for what in ("held", "not handled", "done twice")]
        back, lost = each.of("back after s"), each.of("held and not handled")
        after = f"{_plain(back.median)} s" if back else NOTHING
        if lost and lost.high:
            after = f"{after}, {_count(lost)} not at all" if back else f"not in {BACK:.0f} s"
        rows.append([title, *counts, after])
    return _headed("Killed worker", "a busy worker is killed with `kill -9`, and a new one started at once", rows, "crash")


OTHERS: dict[str, Callable[[Mapping[str, Rounds]], str]] = {
    "lateness": _lateness,
    "memory": _memory,
    "idle": _idle,
    "crash": _crash,
}


def _settings() -> str:
    rows = [["", "version", "settings", "documented in"]]
    rows += [[each.title, each.version or "this one", each.settings, each.documented] for each in (BIDE, *PEERS.values())]
    return _headed("Settings", "the same everywhere, unless the table says otherwise", rows, "")


def _rounds(found: Mapping[str, Rounds]) -> str:
    return f"{max(len(each.figures) for each in found.values())} rounds"


def _with_bide(found: Mapping[str, Rounds]) -> Iterator[tuple[str, Rounds]]:
    for peer in (BIDE, *PEERS.values()):
        if peer.name in found:
            yield peer.title, found[peer.name]


def _headed(title: str, text: str, rows: list[Row], work: str) -> str:
    command = f" `python -m benchmarks.peers --work {work}` prints this table." if work else ""
    return f"### {title}\n\n{text[0].upper()}{text[1:]}.{command}\n\n{_table(rows)}"


def _table(rows: list[Row]) -> str:
    rows = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _spread(found: Middle | None) -> str:
    """A median, and the lowest and highest round."""
    if found is None:
        return NOTHING
    return f"{_plain(found.median)} ({_plain(found.low)}–{_plain(found.high)})"


def _count(found: Middle | None) -> str:
    return NOTHING if found is None else f"{found.median:.0f}"


def _plain(value: float) -> str:
    """Three digits are all that such figures bear."""
    size = abs(value)
    if size >= 1_000:
        return f"{float(f'{value:.3g}'):,.0f}"
    return f"{value:.0f}" if size >= 100 else f"{value:.1f}" if size >= 10 else f"{value:.2f}"
