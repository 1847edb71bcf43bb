"""Hypothesis strategies for the steps: messages, pointers to them, ends and times."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy as Drawn
from msgspec.structs import replace

from bide.engines.base import NewMessage, Origin, Past, Verdict

Verb = TypeVar("Verb", bound=Callable[..., object])

TOPICS = ("a", "b", "a.b-c_D")
KEYS = ("k", "ключ:1")


class Pointer(NamedTuple):
    """Points to a message: a living one or any, counted from the newest; or by key; or to none."""

    kind: str
    pick: int
    topic: str
    key: str


class Ending(NamedTuple):
    """How to end a delivery: a held one or any, counted from the newest. `made_up`: which part of it is wrong."""

    held: bool
    pick: int
    verdict: Verdict
    delay: int
    error: str | None
    aside: bool
    began: int | None  # how long before now the first attempt began
    trace: bytes | None
    attempts: int | None
    made_up: str


class Act(NamedTuple):
    verb: str
    how: dict[str, Any]


spans: Drawn[int] = st.sampled_from([0, 0, 0, 1, 10, 50, 1_000, 60_000, 90_000_000])
instants: Drawn[int | None] = st.sampled_from([None, None, None, None, -1_000, 0, 5, 1_000])  # from the clock
topics: Drawn[str] = st.sampled_from(["a", *TOPICS])
some_topics: Drawn[list[str]] = st.one_of(st.just(list(TOPICS)), st.lists(topics, max_size=3, unique=True))
picks: Drawn[int] = st.one_of(st.integers(0, 2), st.integers(0, 30))  # of what there is, counted from the newest
some_picks: Drawn[list[int]] = st.lists(picks, min_size=1, max_size=4)
leases: Drawn[int] = st.sampled_from([1, 10, 1_000, 60_000])
limits: Drawn[int] = st.integers(1, 6)
pages: Drawn[int] = st.integers(1, 4)
verdicts: Drawn[Verdict] = st.sampled_from(["done", "retry", "retry", "release", "dead", "dead"])
some_verdicts: Drawn[list[Verdict]] = st.lists(verdicts, min_size=1, max_size=4)
errors: Drawn[str | None] = st.sampled_from([None, "it broke", "∅"])


def _fitting(new: NewMessage, longer: int | None) -> NewMessage:
    """With a longest wait, or as the only one of its key for a time, where it may be."""
    if new.past is not None and new.if_exists == "keep":
        return new
    new = replace(new, past=None)
    if new.if_exists == "merge":
        if new.key is None:
            return replace(new, if_exists="keep")
        return replace(new, body=b"[%d]" % len(new.body), largest=12 if longer is None else 4_000)
    if longer is None or new.key is None or new.if_exists == "replace":
        return new
    return replace(new, max_wait=new.delay + longer) if new.if_exists == "later" else replace(new, unique_for=longer)


_any_messages: Drawn[NewMessage] = st.builds(
    NewMessage,
    topic=topics,
    body=st.sampled_from([b"", b"1", b"\x00\xff", b"{}" * 50, b"[]", b"[[2]]"]),
    delay=spans,
    at=instants,
    key=st.sampled_from([None, *KEYS]),
    if_exists=st.sampled_from(["keep", "replace", "later", "merge", "error"]),
    level=st.sampled_from([1, 1, 1, 1, 1, 0, 2]),
    expires_in=st.sampled_from([None, None, None, None, None, 0, 1, 20, 2_000, 100_000]),
    max_attempts=st.integers(1, 3),
    headers=st.sampled_from([{}, {"x": "y"}, {"ü": ""}]),
    operation=st.sampled_from([None, None, None, "o", "p"]),
    past=st.sampled_from([*[None] * 8, Past(0, "∅"), Past(0, None, [b"\0", b"why"]), Past(3, "it broke", [], True)]),
)
messages: Drawn[NewMessage] = st.builds(_fitting, _any_messages, st.sampled_from([None, 1, 50, 60_000]))
batches: Drawn[list[NewMessage]] = st.lists(messages, min_size=1, max_size=5)
pointers: Drawn[list[Pointer]] = st.lists(
    st.builds(Pointer, st.sampled_from(["live", "live", "any", "key", "key", "none"]), picks, topics, st.sampled_from(KEYS)),
    min_size=1,
    max_size=3,
)
made_up: Drawn[str] = st.sampled_from([*[""] * 6, "token", "topic", "id"])
origins: Drawn[Origin] = st.sampled_from(["now", "now", "due", "since"])
begans: Drawn[int | None] = st.sampled_from([None, None, 0, 1, 60_000])
traces: Drawn[bytes | None] = st.sampled_from([None, b"\0\xff", b"R" * 1_000, b"L" * 8_192])
most: Drawn[int | None] = st.sampled_from([None, None, 1, 3, 12])
endings: Drawn[list[Ending]] = st.lists(
    st.builds(
        Ending,
        st.sampled_from([True, True, False]),
        picks,
        verdicts,
        spans,
        errors,
        st.booleans(),
        begans,
        traces,
        most,
        made_up,
    ),
    min_size=1,
    max_size=4,
)

WAYS: list[Drawn[Act]] = []


def way(weight: int, **how: Drawn[Any]) -> Callable[[Verb], Verb]:
    """One kind of step. It is taken `weight` times as often as one of weight 1."""

    def add(verb: Verb) -> Verb:
        WAYS.extend([st.builds(Act, st.just(verb.__name__), st.fixed_dictionaries(how))] * weight)
        return verb

    return add
