"""Imports an application anew, as in a process of its own: its settings, and the queue that its module makes, are a test's."""

import functools
import importlib
import sys
from typing import Any

import pytest

import bide
from bide import ManualClock


def imported(module: str, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, **settings: str) -> Any:
    """The module, with these environment variables, and with the clock in the queues that it makes."""
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    for colour in ("AsyncQueue", "Queue"):
        monkeypatch.setattr(bide, colour, functools.partial(getattr(bide, colour), clock=clock))
    for known in [name for name in sys.modules if name.partition(".")[0] == module.partition(".")[0]]:
        del sys.modules[known]
    return importlib.import_module(module)
