"""The error of a batch knows that of each of its items."""

import gc
import pickle
import weakref
from typing import Never

import pytest

from bide import BadOption, BideError, Call, Hook, OutcomeUnknown, Queue, Unavailable, Unsupported
from bide.engines.each import error_of_each, keep_each, raise_first
from bide.engines.memory.sync import Memory


def test_each_item_has_its_own_error_or_none() -> None:
    first, other = Unsupported("One."), Unsupported("Another.")
    with pytest.raises(Unsupported, match=r"^One\.$") as caught:
        raise_first([None, first, other])
    assert list(error_of_each(caught.value, 3)) == [None, first, other]
    raise_first([None, None])


def test_an_error_that_knows_of_no_items_is_that_of_all_that_were_not_done() -> None:
    error = OutcomeUnknown("No answer.", answers=["1", None])
    assert list(error_of_each(error, 2)) == [None, error]
    assert list(error_of_each(keep_each(error, [error, error]), 2)) == [None, error]
    assert list(error_of_each(Unavailable("Away."), 1)) != [None]


def test_it_is_the_same_after_it_was_pickled() -> None:
    error = keep_each(Unsupported("One."), [None, Unsupported("Another.")])
    again = pickle.loads(pickle.dumps(error))
    assert [str(each) for each in error_of_each(again, 2)] == ["None", "Another."]


class Large:
    """What a caller holds while it sends."""


class Spoils(Hook):
    def before(self, call: Call) -> None:
        if call.verb == "put":
            call.asked[0].headers["tenant"] = 7


def away(*_: object, **__: object) -> Never:
    raise Unavailable("Away.")


@pytest.mark.parametrize(
    ("hooks", "key", "refusal"),
    [((), "k", Unsupported), ((Spoils(),), None, BadOption), ((), None, Unavailable), ((Hook(),), None, Unavailable)],
)
def test_what_the_caller_of_a_send_that_failed_holds_is_free_when_the_error_is(
    hooks: tuple[Hook, ...], key: str | None, refusal: type[BideError], modest_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if refusal is Unavailable:
        monkeypatch.setattr(Memory, "put", away)
    held: list[weakref.ref[Large]] = []

    def send(queue: Queue) -> None:
        large = Large()
        held.append(weakref.ref(large))
        queue.send("t", 1, key=key)

    with Queue(modest_url, hooks=hooks) as queue:
        queue.open()
        gc.collect()
        gc.disable()
        try:
            with pytest.raises(refusal):
                send(queue)
            assert held[0]() is None
        finally:
            gc.enable()
