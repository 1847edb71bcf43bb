"""What is to be done as a whole is refused if an engine would do it in parts, or if it names messages otherwise."""

from typing import Any

import pytest
from msgspec.structs import replace

from bide import Queue
from bide.engines.base import Condition, Move, Ref, Seen
from bide.errors import BadOption, Unsupported

A, B = Ref(id="a"), Ref(id="b")
HOLDS = Condition("c", 0)


@pytest.fixture
def engine() -> Any:
    guard: Any = Queue("memory://").session.engine()
    guard.capabilities = replace(guard.capabilities, together=2)
    return guard


@pytest.mark.parametrize(
    ("refs", "seen"),
    [([A, A], [Seen(0), Seen(0)]), ([A, B], [Seen(0)]), ([Ref(topic="mail", key="k")], [Seen(0)])],
    ids=["one twice", "one was not seen", "by its key"],
)
def test_what_was_seen_is_named_once_by_its_id(engine: Any, refs: list[Ref], seen: list[Seen]) -> None:
    with pytest.raises(BadOption, match="name each message once, by its id"):
        engine.cancel(refs, seen=seen)


@pytest.mark.parametrize("condition", [HOLDS, None])
@pytest.mark.parametrize("refs", [[A, A], [Ref(topic="mail", key="k")]], ids=["one twice", "by its key"])
def test_what_moves_on_a_condition_is_named_once_by_its_id(engine: Any, refs: list[Ref], condition: Condition | None) -> None:
    with pytest.raises(BadOption, match="name each message once, by its id"):
        engine.reschedule([Move(each, 1_000, seen=0) for each in refs], condition=condition)


def test_no_more_than_an_engine_does_together(engine: Any) -> None:
    many = [Ref(id=id) for id in "abc"]
    with pytest.raises(Unsupported, match="ends no more than 2 at once as a whole, and these are 3"):
        engine.cancel(many, seen=[Seen(0)] * 3)
    with pytest.raises(Unsupported, match="moves no more than 2 at once on a condition, and these are 3"):
        engine.reschedule([Move(each, 1_000) for each in many], condition=HOLDS)


def test_an_engine_that_does_nothing_together_knows_no_condition(engine: Any) -> None:
    engine.capabilities = replace(engine.capabilities, together=1)
    with pytest.raises(Unsupported, match=r"leave condition= out"):
        engine.reschedule([Move(A, 1_000)], condition=HOLDS)
