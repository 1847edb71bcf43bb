"""The sentence that names the engines that can: it agrees with what each engine says of itself."""

import importlib

import pytest

from bide import AsyncQueue, Queue, Unsupported
from bide.engines import registry
from bide.engines.base import Capabilities
from bide.engines.guard.able import ABLE, others_can
from tests.contract.test_seam import ABSENT


def engines() -> dict[str, Capabilities]:
    """Each engine that the registry knows, by the first of its schemes."""
    first: dict[str, str] = {}
    for scheme, (package, _) in registry._ENGINES.items():
        first.setdefault(package, scheme)
    return {scheme: importlib.import_module(package).CAPABILITIES for package, scheme in first.items()}


def test_the_engines_that_are_named_are_those_that_can() -> None:
    can = {needs: {name for name, each in engines().items() if getattr(each, needs)} for needs in ABSENT}
    assert {needs: set(names) for needs, names in ABLE.items()} == can


def test_an_engine_that_can_inspect_tells_of_its_dead_letters_too() -> None:
    assert [name for name, can in engines().items() if can.inspect and not can.dead] == []


def test_they_are_named_in_a_sentence() -> None:
    assert others_can("transactional") == "These engines can: sqlite:// and postgres://."
    assert others_can("cancel", "transactional") == "These engines can: sqlite:// and postgres://."
    assert others_can("cancel").startswith("These engines can: sqlite://, redis://, ")


async def test_a_refused_call_names_the_engines_that_can(modest_url: str) -> None:
    able = "These engines can: sqlite://, redis://, postgres:// and memory://."
    async with AsyncQueue(modest_url) as queue:
        for call, what in (
            (queue.cancel("id"), "cancel or reschedule messages"),
            (queue.get("id"), "look messages up"),
            (queue.topics(), "list topics or count messages"),
            (queue.timeline(), "tell how many messages fall due at which time"),
            (queue.messages("t", state="ready"), "list or purge messages that are not dead letters"),
            (queue.purge("t", state="ready"), "list or purge messages that are not dead letters"),
            (queue.pause("t"), "pause topics"),
        ):
            with pytest.raises(Unsupported) as refused:
                await call
            assert str(refused.value) == f"modest:// can't {what}. {able}"
        for options, what in (
            ({"key": "k"}, "has no keys: leave key= and if_exists= out"),
            ({"operation": "o"}, "does not remember operations: leave operation= out"),
            ({"priority": "high"}, "has no priorities: leave priority= out"),
        ):
            with pytest.raises(Unsupported) as refused:
                await queue.send("t", **options)  # type: ignore[arg-type]
            assert str(refused.value) == f"modest:// {what}. {able}"


def test_a_transaction_that_can_not_be_joined_names_them_too(modest_url: str) -> None:
    with Queue(modest_url) as queue, pytest.raises(Unsupported, match=r"out\. These engines can: sqlite:// and postgres://\.$"):
        queue.send("t", connection=object())
