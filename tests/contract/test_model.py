"""The memory engine beside the model, through histories that nobody would think of."""

import os
import random

import pytest

from tests.model.hypothesis_rules import check_engine, from_url
from tests.model.turns import BUDGET, COLOURS, by_turns


@by_turns(range(4))
def test_memory_does_what_the_model_does(colour: str, seed: int) -> None:
    check_engine(from_url("memory://"), colour=colour, examples=50, steps=50, seed=seed, budget=BUDGET)


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.skipif("BIDE_LONG" not in os.environ, reason="thousands of histories: BIDE_LONG=1 runs them")
@pytest.mark.parametrize("colour", COLOURS)
def test_memory_does_what_the_model_does_for_long(colour: str) -> None:
    seed = random.randrange(10**9)
    command = f"python -m tests.model.hypothesis_rules memory:// --colour {colour} --first {seed}"
    print(f"seed {seed}: {command} --examples 2000 --steps 100")
    check_engine(from_url("memory://"), colour=colour, examples=2_000, steps=100, seed=seed, budget=BUDGET)
