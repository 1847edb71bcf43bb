"""Which histories are played in which colour. One colour is generated from the other, so both need not play each."""

import math
import os
from collections.abc import Iterable
from itertools import cycle, product

import pytest

COLOURS = ("async", "sync")
LONG = os.environ.get("BIDE_LONG")
BUDGET = math.inf if LONG else 4.0  # seconds of a core, for the histories of one test


def by_turns(seeds: Iterable[int], *, first: int = 0) -> pytest.MarkDecorator:
    """Each seed in one colour, by turns, and with BIDE_LONG in both."""
    turned = COLOURS[first:] + COLOURS[:first]
    pairs = product(seeds, COLOURS) if LONG else zip(seeds, cycle(turned))
    return pytest.mark.parametrize(("seed", "colour"), list(pairs))
