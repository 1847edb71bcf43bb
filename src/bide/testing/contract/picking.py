"""Picks an engine's tests by what it says it can do, never by its name."""

from collections.abc import Callable
from typing import TypeVar

from bide.engines.base import Capabilities

Test = TypeVar("Test", bound=Callable[..., object])


def needs(*capabilities: str) -> Callable[[Test], Test]:
    """A test for engines that have all of these capabilities."""
    return _marked("needs", capabilities)


def lacks(*capabilities: str) -> Callable[[Test], Test]:
    """A test for engines that have none of these capabilities."""
    return _marked("lacks", capabilities)


def marked(test: object, word: str) -> tuple[str, ...]:
    """What `needs` or `lacks` says of a test; nothing is said of most."""
    named: tuple[str, ...] = getattr(test, "__dict__", {}).get(word, ())
    return named


def fits(test: object, capabilities: Capabilities) -> bool:
    """Whether an engine with these capabilities must pass the test."""
    return all(getattr(capabilities, each) for each in marked(test, "needs")) and not any(
        getattr(capabilities, each) for each in marked(test, "lacks")
    )


def _marked(word: str, capabilities: tuple[str, ...]) -> Callable[[Test], Test]:
    def mark(test: Test) -> Test:
        test.__dict__[word] = capabilities
        return test

    return mark
