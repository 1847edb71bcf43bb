"""Shared by all tests."""

import functools
from collections.abc import Callable
from typing import Any

import pytest

pytest_plugins = ["tests.servers.fixtures"]


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
