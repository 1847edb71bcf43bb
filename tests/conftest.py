"""Shared by all tests."""

import functools
import gc
import os
import signal
from collections.abc import Callable, Generator
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings

from bide.engines import registry
from tests.servers.server import memory

# A busy machine is slow, and no test judges by time.
settings.register_profile("bide", deadline=None)
settings.load_profile("bide")

if (folder := memory()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(folder))  # what tests write to a disk would wait for it again and again

pytest_plugins = ["tests.times", "tests.brief", "tests.share", "tests.servers.fixtures", "tests.servers.rabbitmq_fixtures"]


def pytest_configure() -> None:
    """Who runs tests by nohup or in the background ignores signals; what tests start would ignore them, too."""
    for number in (signal.SIGHUP, signal.SIGINT):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)  # ignored here still, and not by what is executed


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays until the end, so nobody looks through it for garbage, again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(params=["async", "sync"])
def coloured(request: pytest.FixtureRequest) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Makes a handler of one colour out of a plain function."""

    def colour(function: Callable[..., Any]) -> Callable[..., Any]:
        if request.param == "sync":
            return function

        @functools.wraps(function)
        async def handler(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        return handler

    return colour


@pytest.fixture
def modest_url(monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL of a new place of an engine that can do little: see tests/modest.py."""
    monkeypatch.setitem(registry._ENGINES, "modest", ("tests.modest", ""))
    return f"modest://{uuid4().hex}"
