"""Measures round by round, so that a noisy machine is noisy to all: bide and a peer take turns, or all of them do."""

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from subprocess import CalledProcessError

from benchmarks.peers import servers
from benchmarks.peers.install import NotInstalled, environment
from benchmarks.peers.peer import Peer
from benchmarks.peers.quiet import busy
from benchmarks.peers.registry import beside
from benchmarks.peers.running import Failed
from benchmarks.peers.servers import Stage
from benchmarks.peers.summary import Rounds
from benchmarks.peers.works import WORKS, Figures, Work


def installed(peers: Sequence[Peer]) -> tuple[list[Peer], dict[str, str]]:
    """Those whose environment is there or can be made, and why the others are left out."""
    found, missing = [], {}
    for peer in peers:
        try:
            environment(peer.home)
            servers.need(peer.server)
        except NotInstalled as reason:
            missing[peer.name] = str(reason)
            tell(f"{peer.title} is left out: {reason}")
        else:
            found.append(peer)
    return found, missing


def measured(name: str, peers: Sequence[Peer], rounds: int | None) -> dict[str, Rounds]:
    """The figures of one kind of work: of each peer, with those of bide beside it; or of each, and bide."""
    work = WORKS[name]
    times = rounds or work.rounds
    peers = [peer for peer in peers if work.suits(peer)]
    begin = time.monotonic()
    if work.beside:
        found = _beside(name, work, peers, times)
    else:
        found = _together(name, work, [*dict.fromkeys(map(beside, peers)), *peers], times)
    tell(f"{name}: {(time.monotonic() - begin) / 60:.1f} minutes")
    for peer in peers:
        if peer.name not in found:
            tell(f"{name}: {peer.title} gave no figure at all")
    return found


def _beside(name: str, work: Work, peers: Sequence[Peer], times: int) -> dict[str, Rounds]:
    found = {}
    with Stage() as stage:
        for peer in peers:
            mine: list[Figures] = []
            ours: list[Figures] = []
            looks: list[float] = []
            for number in range(times):
                looks.append(busy())
                pair = [(peer, mine), (beside(peer), ours)]
                for each, figures in pair if number % 2 else reversed(pair):
                    figures.append(_one(name, work, each, stage, number))
            found[peer.name] = _rounds(peer, mine, ours, looks).paired()
    return {peer: each for peer, each in found.items() if each.figures}


def _together(name: str, work: Work, peers: Sequence[Peer], times: int) -> dict[str, Rounds]:
    found: dict[str, list[Figures]] = {peer.name: [] for peer in peers}

    def one(peer: Peer, number: int) -> Figures:
        with Stage() as stage:
            return _one(name, work, peer, stage, number)

    looks: list[float] = []
    for number in range(times):
        looks.append(busy())
        left = [peer for peer in peers if len(found[peer.name]) == number]  # one that has failed is not tried again
        with ThreadPoolExecutor(work.at_once) as pool:
            for peer, figures in zip(left, pool.map(one, left, [number] * len(left)), strict=True):
                if figures:
                    found[peer.name].append(figures)
    return {peer.name: _rounds(peer, found[peer.name], [], looks) for peer in peers if found[peer.name]}


def _rounds(peer: Peer, mine: list[Figures], ours: list[Figures], looks: list[float]) -> Rounds:
    used = round(statistics.median(looks), 1)
    return Rounds(figures=mine, beside=ours, version=peer.version, date=time.strftime("%Y-%m-%d"), busy=used)


def _one(name: str, work: Work, peer: Peer, stage: Stage, number: int) -> Figures:
    try:
        figures = work.measure(peer, stage)
    except (Failed, NotInstalled, CalledProcessError) as reason:
        tell(f"{name} {number + 1}: {peer.title} gave no figure: {reason}")
        return {}
    if figures:
        tell(f"{name} {number + 1}: {peer.title:<22} {_shown(figures)}")
    return figures


def _shown(figures: Figures) -> str:
    return ", ".join(f"{value:,.1f} {what}" for what, value in figures.items())


def tell(text: str) -> None:
    """A line of progress: the whole takes long."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def all_measured(
    names: Sequence[str], peers: Sequence[Peer], rounds: int | None, keep: Callable[[str, Mapping[str, Rounds]], None]
) -> Iterator[tuple[str, Mapping[str, Rounds]]]:
    """Each kind of work in turn, kept as soon as it is measured."""
    for name in names:
        found = measured(name, peers, rounds)
        keep(name, found)
        yield name, found
