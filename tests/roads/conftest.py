"""Consumers that are ended with their test."""

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from tests.roads.consumers import Consumer


class Start(Protocol):
    def __call__(self, way: str, url: str = "", *options: str, **settings: Any) -> Consumer: ...


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a way's consumer in a process of its own."""
    started: list[Consumer] = []

    def begin(way: str, url: str = "", *options: str, **settings: Any) -> Consumer:
        started.append(Consumer(way, url, *options, **settings))
        return started[-1]

    yield begin
    for consumer in started:
        consumer.kill()
