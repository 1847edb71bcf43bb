# Generated from ../aio/fresh.py by tools/unasync.py; change that file instead.
"""What claims bring, until somebody has looked at it. If nobody does it is given back, or it would be leased to nobody."""

import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeAlias

from bide.engines.base import SWEEP, End
from bide.engines.sync import Engine
from bide.errors import BideError, EngineError, Unavailable
from bide.ids import requests
from bide.logs import Log
from bide.queue.affinity import Affinity
from bide.queue.sync.delivery import Delivery
from bide.wakeable import Briefly, Signal

_log = Log("bide.intake")
NAP = 0.005  # seconds between two looks whether others have ended
SOON = 0.5  # seconds in which a caller that was cancelled gets away, though the engine does not answer

Place: TypeAlias = deque[Delivery]
"""Deliveries of one taker. Whoever takes one out has it, and does so one at a time: a close may come from another thread."""


class Fresh:
    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._new_request = requests()
        self._claims: dict[str, object] = {}  # under way, by their names: who waits for them
        self._unanswered: set[str] = set()  # names of claims
        self._returning: list[object] = []  # who is giving something back
        self._places: dict[int, Place] = {}
        self._closed = False

    @contextmanager
    def place(self) -> Iterator[Place]:
        """Of a listener or a receive. A close gives back what it finds there."""
        place: Place = deque()
        self._places[id(place)] = place
        try:
            yield place
        finally:
            del self._places[id(place)]

    def check(self) -> None:
        if self._closed:
            raise Unavailable("The queue is closed: make a new one.")

    @contextmanager
    def claim(self) -> Iterator[str]:
        """The name of a claim that is under way. What it brings must be in its place before it ends: a close waits for it."""
        request = self._new_request()
        self._claims[request] = Affinity.caller()
        try:
            self.check()
            yield request
        finally:
            self._claims.pop(request, None)

    def came(self, request: str, place: Place) -> None:
        """A claim was answered. Raises Unavailable if the queue was closed meanwhile: then nobody can end what it brought."""
        if self._closed:
            if request in self._claims or request in self._unanswered:
                self.give_back(place)
            place.clear()  # else the close has asked for it again
            self.check()

    def failed(self, request: str, error: BaseException) -> None:
        """A claim has ended in an error, and may have taken something."""
        self._unanswered.add(request)
        if not isinstance(error, (BideError, GeneratorExit)):  # the engine may well answer now
            _briefly(self.give_back_unanswered)  # what does not succeed now is done with the next claim, or at the end

    def give_back_unanswered(self) -> None:
        """Ask for those claims again, which gives what they hold and nothing new, and release it."""
        for request in list(self._unanswered):
            claim = self._engine.claim([], 1, 1, request=request)
            if claim.messages:
                self._engine.settle([End(each.topic, each.id, each.token, "release") for each in claim.messages])
            if not claim.more:  # else a part of the engine did not answer, and may hold some
                self._unanswered.discard(request)

    def try_to_give_back(self, place: Place) -> None:
        """What does not succeed now comes back when its lease ends."""
        _briefly(lambda: self.give_back(place))

    def give_back(self, place: Place) -> None:
        """Release what nobody has looked at. Its leases are renewed no longer, whatever becomes of that."""
        given = taken_from(place)
        for delivery in given:
            delivery.mark_ended()
        if not given:
            return
        caller = Affinity.caller()
        self._returning.append(caller)
        try:
            self._engine.settle([delivery.end("release") for delivery in given])
        except EngineError as error:
            _log.warning("%d messages could not be given back and come back when their leases end: %s", len(given), error)
        finally:
            self._returning.remove(caller)

    def close(self) -> None:
        """Give back what is in its place, and what claims bring that are under way: those of others it waits for, for SWEEP
        seconds. Those that hang, and one that it interrupts, are asked for again."""
        self._closed = True
        try:
            self._wait_for_others()
            self._give_all_back()
            self._wait_for_others()  # another close, which may give back what this one has not
        except BaseException:  # cancelled: the engine is closed now, also under claims
            _briefly(self._give_all_back)
            raise

    def _wait_for_others(self) -> None:
        ours, until = Affinity.caller(), time.monotonic() + SWEEP
        while any(each != ours for each in (*self._claims.values(), *self._returning)) and time.monotonic() < until:
            Signal().wait(NAP)

    def _give_all_back(self) -> None:
        self._unanswered.update(self._claims)
        self._claims.clear()
        for place in list(self._places.values()):
            self.give_back(place)
        with suppress(BideError):
            self.give_back_unanswered()


def _briefly(give_back: Callable[[], None]) -> None:
    with suppress(BideError, TimeoutError):
        _in_time(give_back)


def _in_time(give_back: Callable[[], None]) -> None:
    with Briefly(SOON):
        give_back()


def taken_from(place: Place) -> list[Delivery]:
    found: list[Delivery] = []
    with suppress(IndexError):
        while True:
            found.append(place.popleft())
    return found
