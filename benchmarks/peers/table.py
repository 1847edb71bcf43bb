"""The tables of docs/comparison.md, from the figures that are kept."""

from collections.abc import Callable, Iterator, Mapping

from benchmarks.peers.peer import Peer
from benchmarks.peers.registry import BOTH, PEERS, beside
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
MEASURED = "measured"

Row = list[str]


def tables(results: Results, machine: str) -> str:
    """All that stands in the generated part of the page."""
    text = 'Each figure has the date of its measurement; "cores busy" is what other programs used then, in processors'
    texts = [f"Measured on: {machine}. {text}.\n", _ratios(results)]
    texts += [_rates(work, results[work]) for work in TITLES if work in results]
    texts += [make(results[work]) for work, make in OTHERS.items() if work in results]
    return "\n".join([*texts, _settings()])


def _ratios(results: Results) -> str:
    """How many times as fast bide is, at a glance."""
    rows = [["", "one by one", "batches", "drain", "burst"]]
    for peer in PEERS.values():
        ratios = [_ratio(results.get(work, {}).get(peer.name)) for work in TITLES]
        rows.append([peer.title, *ratios])
    text = (
        "how many times as fast as the peer bide is, on the same server: the median of the ratios in each round."
        f" On PostgreSQL: {', '.join(peer.title for peer in PEERS.values() if beside(peer) is not BOTH[0])}"
    )
    return _headed("Ratios", text, rows, "")


def _ratio(rounds: Rounds | None) -> str:
    found = rounds.ratio(RATE) if rounds else None
    return f"{_plain(found.median)} ×" if found else NOTHING


def _rates(work: str, found: Mapping[str, Rounds]) -> str:
    text = f"messages a second, in {_rounds(found)}, each peer and bide by turns on the same server"
    parts = [_headed(TITLES[work], text, [], work)]
    for ours in BOTH:
        rows = [["", "a second", "bide beside it", "bide is … times as fast", MEASURED]]
        for peer in PEERS.values():
            rounds = found.get(peer.name)
            if rounds is None or beside(peer) is not ours:
                continue
            how = f" ({peer.batch})" if work == "batch" else ""
            figures = [_spread(each) for each in (rounds.of(RATE), rounds.ours(RATE), rounds.ratio(RATE))]
            rows.append([peer.title + how, *figures, _when(peer, rounds)])
        if len(rows) == 1:
            continue
        overall = f"{ours.title} over all rounds: {_spread(bide_of(found, RATE, ours))}"
        if plain := bide_of(found, "plain", ours):
            overall += f", and {_spread(plain)} of messages without a time"
        parts.append(f"{overall}.\n\n{_table(rows)}")
    return "\n".join(parts)


def _lateness(found: Mapping[str, Rounds]) -> str:
    rows = [["", "p50 ms", "p99 ms", "latest ms", "early", MEASURED]]
    for peer, each in _with_bide(found):
        early, earliest = each.of("early"), each.of("lowest ms")
        assert early is not None
        assert earliest is not None
        told = f"{_plain(early.median)}, by up to {_plain(-earliest.low)} ms" if early.high else "none"
        figures = [_spread(each.of(what)) for what in ("p50 ms", "p99 ms", "highest ms")]
        rows.append([peer.title, *figures, told, _when(peer, each)])
    text = f"2,000 messages spread over 20 s, one worker, handled so long after their time; in {_rounds(found)}"
    return _headed("Lateness", text, rows, "lateness")


def _memory(found: Mapping[str, Rounds]) -> str:
    rows = [["", "bytes a message", "of these, overhead", MEASURED]]
    for peer, each in _with_bide(found):
        size = each.of("bytes")
        assert size is not None
        rows.append([peer.title, f"{size.median:,.0f}", f"{size.median - 100:,.0f}", _when(peer, each)])
    text = "a pending message with a payload of 100 bytes: Redis's memory for it, or PostgreSQL's tables and indexes"
    return _headed("Memory", text, rows, "memory")


def _idle(found: Mapping[str, Rounds]) -> str:
    rows = [["", "commands a second", MEASURED]]
    rows += [[peer.title, _spread(each.of("commands a second")), _when(peer, each)] for peer, each in _with_bide(found)]
    text = (
        "one idle worker, 10,000 messages pending; the commands inside scripts are counted; the settings are those of lateness"
    )
    return _headed("Idle", text, rows, "idle")


def _crash(found: Mapping[str, Rounds]) -> str:
    rows = [
        [
            "",
            "held when killed",
            f"of {CRASH}, not handled in {BACK:.0f} s",
            "done twice",
            "held ones were back after",
            MEASURED,
        ]
    ]
    for peer, each in _with_bide(found):
        counts = [_count(each.of(what)) for what in ("held", "not handled", "done twice")]
        back, lost = each.of("back after s"), each.of("held and not handled")
        after = f"{_plain(back.median)} s" if back else NOTHING
        if lost and lost.high:
            after = f"{after}, {_count(lost)} not at all" if back else f"not in {BACK:.0f} s"
        rows.append([peer.title, *counts, after, _when(peer, each)])
    return _headed("Killed worker", "a busy worker is killed with `kill -9`, and a new one started at once", rows, "crash")


OTHERS: dict[str, Callable[[Mapping[str, Rounds]], str]] = {
    "lateness": _lateness,
    "memory": _memory,
    "idle": _idle,
    "crash": _crash,
}


def _settings() -> str:
    rows = [["", "version", "settings", "documented in"]]
    rows += [[each.title, each.version or "this one", each.settings, each.documented] for each in (*BOTH, *PEERS.values())]
    return _headed("Settings", "the same everywhere, unless the table says otherwise", rows, "")


def _rounds(found: Mapping[str, Rounds]) -> str:
    counts = sorted({len(each.figures) for each in found.values()})
    return f"{counts[0]} to {counts[-1]} rounds" if len(counts) > 1 else "1 round" if counts == [1] else f"{counts[0]} rounds"


def _when(peer: Peer, rounds: Rounds) -> str:
    """The date; and what was different then: another version, a machine that was not quiet."""
    version = f", version {rounds.version}" if rounds.version != peer.version else ""
    return rounds.date + version + (f", {rounds.busy:.1f} cores busy" if not rounds.quiet else "")


def _with_bide(found: Mapping[str, Rounds]) -> Iterator[tuple[Peer, Rounds]]:
    for peer in (*BOTH, *PEERS.values()):
        if peer.name in found:
            yield peer, found[peer.name]


def _headed(title: str, text: str, rows: list[Row], work: str) -> str:
    command = f" `python -m benchmarks.peers --work {work}` prints this table." if work else ""
    return f"### {title}\n\n{text[0].upper()}{text[1:]}.{command}\n" + (f"\n{_table(rows)}" if rows else "")


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
