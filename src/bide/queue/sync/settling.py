# Generated from ../aio/settling.py by tools/unasync.py; change that file instead.
"""Ends deliveries for a caller who waits for all of them, also where a part of the engine does not answer for a while."""

from collections.abc import Sequence

from bide.engines.base import End, Ended
from bide.engines.sync import Engine
from bide.errors import OutcomeUnknown


def settle_all(engine: Engine, ends: Sequence[End], connection: object | None = None) -> list[Ended]:
    """The engine's answers. What it left out, so that others did not wait for that, it is told again alone."""
    try:
        return engine.settle(ends, connection=connection)
    except OutcomeUnknown as error:
        if not error.untried:
            raise
        answers = list(error.answers)
        rest = settle_all(engine, [ends[i] for i in error.untried], connection)
        for i, answer in zip(error.untried, rest, strict=True):
            answers[i] = answer
        if None in answers:
            raise
        return answers
