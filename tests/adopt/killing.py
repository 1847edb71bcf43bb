"""The adopter is killed again and again beside an old system, and what became of every message is judged."""

from collections.abc import Callable, Sequence
from random import Random
from subprocess import Popen
from typing import Any, NamedTuple, TypeAlias

from tests.adopt.dual_run import OLD, DualRun

FILLED, PRODUCED = 100_000, 5_000
TOTAL = FILLED + PRODUCED
KILLS = 5

Start: TypeAlias = Callable[..., Popen[bytes]]
"""Starts a program of the old system: fill, produce or one of its workers, with texts that it is given."""


class Dues(NamedTuple):
    """When messages are due: seconds from their fill or produce on, and how many seconds lie between the first and the last."""

    begin: int
    length: int


SOON = Dues(25, 60)


def dual_run(
    run: DualRun,
    kind: str,
    start: Start,
    command: list[str],
    is_held: Callable[[], bool],
    *,
    workers: Sequence[str] = ("work",),
    filled: Dues = SOON,
    produced: Dues = SOON,
    last: int = 6,
) -> None:
    """The whole life of an old system whose messages are adopted by one that is killed, from its filling to the verdict."""
    assert start("fill", str(FILLED), "0", *map(str, filled)).wait(300) == 0
    for each in workers:
        start(each)
    told = adopt_amid(run, start, command, is_held, produced, last=last)
    judge(run, kind, told)
    assert told["refused"] == {}
    assert not is_held()


def adopt_amid(
    run: DualRun, start: Start, command: list[str], is_held: Callable[[], bool], produced: Dues, *, last: int = 6
) -> dict[str, Any]:
    """Kill the adopter again and again, with what old programs do in between; then let it go on until all is handled.

    `last`: how late it may be killed. Gives what the last adopter has printed.
    """
    start("produce", str(PRODUCED), str(FILLED), *map(str, produced))
    run.until(lambda: run.count(OLD) > 0, "the first message of the old workers")
    random = Random(7)
    for _ in range(KILLS):
        run.kill_adopter(command, is_held, random.randint(1, last))
        run.until_more(OLD, 200)
    with run.adopting(command) as told:
        run.until_all(TOTAL)
    return told


def judge(run: DualRun, kind: str, told: dict[str, Any]) -> None:
    verdict = run.verdict(TOTAL)
    print(f"\n{kind}: {verdict}")
    assert (verdict.lost, verdict.doubled, verdict.early) == (0, 0, 0)
    assert verdict.by_old > 1_000
    assert verdict.by_bide > 1_000
    assert verdict.kills == KILLS
    assert verdict.amid > 0, "no kill came while a batch was under way"
    assert told["held"] == 0
