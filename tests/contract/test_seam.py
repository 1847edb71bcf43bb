"""The seam's docstrings and the contract suite say the same: a promise without a test is none."""

import inspect
import re
from collections import Counter

from bide.engines.aio import AsyncEngine
from bide.engines.base import Capabilities
from bide.engines.gates.aio import AsyncGates
from bide.engines.results.aio import AsyncResults
from bide.testing.contract import EngineContract
from bide.testing.contract.bench import fits, marked

ABSENT = {
    "cancel",
    "lookup",
    "keys",
    "idempotent",
    "extend",
    "inspect",
    "dead",
    "pause",
    "priority",
    "gates",
    "results",
    "past",
    "transactional",
}


def promises() -> list[str]:
    seam = (AsyncEngine, AsyncGates, AsyncResults)
    verbs = [verb for part in seam for verb in vars(part).values() if inspect.isfunction(verb)]
    lines = [line for each in (*seam, *verbs) for line in (inspect.getdoc(each) or "").splitlines()]
    return [line[2:] for line in lines if line.startswith("- ")]


def name_of(promise: str) -> str:
    return "test_" + re.sub(r"[^a-z0-9]+", "_", promise.lower()).strip("_")


def named_tests() -> list[str]:
    """Every test of every theme; a name that two themes share is there twice."""
    return [name for theme in EngineContract.__mro__ for name in vars(theme) if name.startswith("test_")]


def test_the_seam_has_sixteen_verbs() -> None:
    assert len(AsyncEngine.__abstractmethods__) == 16


def test_its_side_doors_have_four_and_five() -> None:
    assert (len(AsyncGates.__abstractmethods__), len(AsyncResults.__abstractmethods__)) == (4, 5)


def test_every_promise_is_one_sentence_on_one_line() -> None:
    assert [each for each in promises() if not re.fullmatch(r"[A-Z].+\.", each)] == []
    assert [each for each, times in Counter(map(name_of, promises())).items() if times > 1] == []


def test_every_promise_has_a_test_and_every_test_a_promise() -> None:
    refusals = {name for name in named_tests() if marked(getattr(EngineContract, name), "lacks")}
    assert Counter(named_tests()) == Counter([*map(name_of, promises()), *refusals])


def test_every_capability_that_may_be_absent_has_a_test_of_its_refusal() -> None:
    refused = [name for test in named_tests() for name in marked(getattr(EngineContract, test), "lacks")]
    assert sorted(refused) == sorted(ABSENT)


def test_every_test_is_picked_by_capabilities_that_exist() -> None:
    named = {
        name for test in named_tests() for word in ("needs", "lacks") for name in marked(getattr(EngineContract, test), word)
    }
    assert named <= set(Capabilities.__struct_fields__)


def test_a_suite_holds_only_what_its_engine_can_do() -> None:
    full = Capabilities(accepted="", transactional=True)
    bare = Capabilities(accepted="", **dict.fromkeys(ABSENT, False))  # type: ignore[arg-type]
    for able in (full, bare):
        suite = type("Suite", (EngineContract,), {"capabilities": able})
        for name in named_tests():
            assert callable(getattr(suite, name)) == fits(getattr(EngineContract, name), able)
    assert not hasattr(EngineContract, "capabilities")
