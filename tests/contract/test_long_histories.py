"""Thousands of steps of two clients beside the model, jumps of weeks among them; in the end nothing is left of it all."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from bide.clock import ManualClock
from bide.engines.base import Settings
from bide.engines.memory import source as memory_source
from bide.engines.registry import Source
from bide.engines.sqlite import source as sqlite_source
from tests.model.long_history import LongHistory, check_long_history
from tests.model.runner import Runner

SHRINK = "BIDE_SHRINK" in os.environ  # a history that fails is made shorter
VERBS = {"put", "claim", "settle", "extend", "cancel", "reschedule", "tend", "look", "requeue", "purge", "purge_named", "pause"}
FEW, MANY = range(2), range(2, 52)

slow = pytest.mark.slow
long = pytest.mark.skipif("BIDE_LONG" not in os.environ, reason="fifty histories: BIDE_LONG=1 runs them")


def of_seeds(test: Callable[..., None]) -> Callable[..., None]:
    """Two in every run, fifty more in the long one."""
    seeds = [*FEW, *(pytest.param(seed, marks=[slow, long]) for seed in MANY)]
    return pytest.mark.parametrize("seed", seeds)(test)  # type: ignore[no-any-return]


def one_seed(test: Callable[..., None]) -> Callable[..., None]:
    """As of_seeds, but one in every run: for an engine whose histories take long."""
    seeds = [
        FEW[0],
        *(pytest.param(seed, marks=slow) for seed in FEW[1:]),
        *(pytest.param(seed, marks=[slow, long]) for seed in MANY),
    ]
    return pytest.mark.parametrize("seed", seeds)(test)  # type: ignore[no-any-return]


def all_verbs_were_asked(history: LongHistory) -> None:
    assert set(history.asked) >= VERBS


def nothing_is_held(runner: Runner) -> None:
    guarded: Any = runner.source
    store = guarded.plain._store
    for name in ("messages", "topics", "held_claims", "answers", "answer_ends", "deadlines", "expiries", "deaths"):
        assert not getattr(store, name)


@pytest.mark.always
@pytest.mark.timeout(600)
@of_seeds
def test_a_long_history_in_memory(seed: int) -> None:
    def make(**settings: Any) -> Source:
        return memory_source(Settings(url="memory://", clock=ManualClock(), **settings))

    all_verbs_were_asked(check_long_history(make, seed=seed, left=nothing_is_held, shrink=SHRINK))


@pytest.mark.timeout(600)
@of_seeds
def test_a_long_history_in_a_file(seed: int, tmp_path: Path) -> None:
    files: list[Path] = []

    def make(**settings: Any) -> Source:
        files.append(tmp_path / f"{len(files)}.db")
        return sqlite_source(Settings(url=f"sqlite:///{files[-1]}", clock=ManualClock(), **settings))

    def no_row_is_left(_: Runner) -> None:
        with closing(sqlite3.connect(files[-1])) as file:
            for table in ("message", "large", "topic", "operation"):
                assert file.execute(f"select count(*) from {table}").fetchone() == (0,), table

    all_verbs_were_asked(check_long_history(make, seed=seed, left=no_row_is_left, shrink=SHRINK))
