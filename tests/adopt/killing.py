"""The adopter is killed again and again beside an old system, and what became of every message is judged."""

from collections.abc import Callable
from random import Random
from typing import Any

from tests.adopt.dual_run import OLD, DualRun

FILLED, PRODUCED = 100_000, 5_000
KILLS = 5


def adopt_amid(run: DualRun, is_held: Callable[[], bool], command: list[str], total: int, *, last: int = 6) -> dict[str, Any]:
    """Kill the adopter again and again, with what old workers do in between; then let it go on until all is handled.

    `last`: how late it may be killed.
    """
    random = Random(7)
    for _ in range(KILLS):
        run.kill_adopter(command, is_held, random.randint(1, last))
        run.until_more(OLD, 200)
    with run.adopting(command) as told:
        run.until_all(total)
    return told


def judge(run: DualRun, kind: str, told: dict[str, Any], total: int) -> None:
    verdict = run.verdict(total)
    print(f"\n{kind}: {verdict}")
    assert (verdict.lost, verdict.doubled, verdict.early) == (0, 0, 0)
    assert verdict.by_old > 1_000
    assert verdict.by_bide > 1_000
    assert verdict.kills == KILLS
    assert verdict.amid > 0, "no kill came while a batch was under way"
    assert told["held"] == 0
