"""Parts that are asked side by side or one after the other, in threads and in event loops, while one does not answer."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bide.rounds import Aside, AsyncAside, AsyncRound, Round

PARTS = ["first", "second", "third"]
FOREVER = 60.0  # seconds
Do = Callable[[Any], Any]


@pytest.fixture(params=["async", "sync"])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def over() -> Iterator[threading.Event]:
    """Until then those that are silent don't answer; their threads end with the test."""
    event = threading.Event()
    yield event
    event.set()


class Asking:
    """Asks parts in one colour, and knows which were asked."""

    def __init__(self, colour: str, over: threading.Event, *silent: str) -> None:
        self.asked: list[str] = []
        self._colour, self._over, self._silent = colour, over, silent

    def answer(self, part: str) -> str:
        self.asked.append(part)
        if part in self._silent:
            self._over.wait(FOREVER)
        if part.startswith("bad"):
            raise ValueError(part)
        return part.upper()

    async def answer_later(self, part: str) -> str:
        self.asked.append(part)
        if part in self._silent:
            await asyncio.Event().wait()
        if part.startswith("bad"):
            raise ValueError(part)
        return part.upper()

    def run(self, parts: list[str], verb: str, *args: Any) -> Any:
        if self._colour == "sync":
            return getattr(Round(parts, self.answer), verb)(*args)

        async def ask() -> Any:
            aside = AsyncAside()
            try:
                return await getattr(AsyncRound(parts, self.answer_later, aside), verb)(*args)
            finally:
                await aside.close()

        return asyncio.run(ask())


def test_those_that_do_not_answer_soon_are_left(colour: str, over: threading.Event) -> None:
    told = Asking(colour, over, "second").run(PARTS, "soon", 0.01)
    assert (told[0], type(told[1]), told[2]) == ("FIRST", TimeoutError, "THIRD")


def test_one_that_answers_late_is_waited_for_when_all_others_fail(colour: str, over: threading.Event) -> None:
    asking = Asking(colour, over)
    told = asking.run(["bad one", "good one"], "soon", 0.0)
    assert isinstance(told[0], ValueError)
    assert told[1] == "GOOD ONE"


def test_the_next_is_not_asked_when_an_answer_is_enough(colour: str, over: threading.Event) -> None:
    asking = Asking(colour, over)
    heard: list[Any] = []

    def enough(part: str, answer: Any) -> bool:
        heard.append((part, answer))
        return True

    asking.run(PARTS, "until", enough, FOREVER)
    assert (asking.asked, heard) == (["first"], [("first", "FIRST")])


def test_the_next_is_asked_when_an_answer_is_not_enough_or_does_not_come(colour: str, over: threading.Event) -> None:
    asking = Asking(colour, over, "silent")
    heard: list[Any] = []

    def enough(part: str, answer: Any) -> bool:
        heard.append(part)
        return part == "third"

    asking.run(["bad one", "silent", "third", "fourth"], "until", enough, 0.01)
    assert heard == ["bad one", "third"]
    assert asking.asked == ["bad one", "silent", "third"]


def test_all_have_been_asked_when_none_is_enough(colour: str, over: threading.Event) -> None:
    asking = Asking(colour, over)
    asking.run(PARTS, "until", lambda part, answer: False, FOREVER)
    assert asking.asked == PARTS


def test_what_is_tried_aside_is_waited_for_no_longer_than_that(over: threading.Event) -> None:
    done: list[str] = []
    Aside().attempt(lambda: done.append("quick"), FOREVER)
    Aside().attempt(lambda: over.wait(FOREVER), 0.01)
    assert done == ["quick"]


async def test_what_is_tried_aside_goes_on_until_all_is_closed() -> None:
    done: list[str] = []
    aside, ended = AsyncAside(), asyncio.Event()

    async def quick() -> None:
        done.append("quick")

    async def slow() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    await aside.attempt(quick, FOREVER)
    await aside.attempt(slow, 0.01)
    assert done == ["quick"]
    assert not ended.is_set()
    await aside.close()
    assert ended.is_set()
