# Generated from ../aio/claims.py by tools/unasync.py; change that file instead.
"""What claims bring: bodies are read; what nobody has looked at is given back, or it would be leased to nobody."""

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar

from msgspec.structs import replace

from bide.core.codec import JSON, decode
from bide.core.formats import plural
from bide.engines.base import MAX_BATCH, SWEEP, Claim, Claimed, End, Ended, Hold
from bide.engines.lots import Lot
from bide.engines.sync import Engine
from bide.errors import BadMessage, BideError, EngineError, Unavailable
from bide.ids import requests
from bide.logs import Log
from bide.queue.batching import Batching
from bide.queue.deliveries import UNREAD, Internals, Read, record_of
from bide.queue.envelope import Envelope
from bide.queue.event_loops import Affinity
from bide.queue.events import UNHEARD, Subscriptions
from bide.queue.leases import Asked
from bide.queue.sync.delivery import Delivery
from bide.wakeable import Briefly, Signal

_log = Log("bide.intake")

Reader: TypeAlias = Callable[[bytes], dict[str, Any] | None]
"""Reads the arguments of a handler from JSON, or gives None where it can't."""
NO_READERS: Mapping[str, Reader] = {}
NAP = 0.005  # seconds between two looks whether others have ended
SOON = 0.5  # seconds in which a caller that was cancelled gets away, though the engine does not answer


class Opener:
    def __init__(
        self,
        engine: Engine,
        envelope: Envelope,
        settles: Batching[End, Ended],
        subscriptions: Subscriptions = UNHEARD,
    ) -> None:
        self._engine = engine
        self._longest = engine.capabilities.max_delay
        self._envelope = envelope
        self._settles = settles
        self._subscriptions = subscriptions

    def open(self, claim: Claim, asked: Asked | None = None) -> list[Delivery]:
        """Deliveries of what can be read."""
        read = self.read(claim, asked)
        now, longest, engine, settles = read.now, self._longest, self._engine, self._settles
        found: list[Delivery] = []
        for claimed, body in zip(read.messages, read.bodies, strict=True):
            inside = Internals(claimed, body, now, longest)
            if read.at_work is not None:
                inside.at_work = read.at_work
            found.append(Delivery(inside, engine, settles))
        return found

    def delivery(self, claimed: Claimed, body: Any, now: int) -> Delivery:
        """Of a message that was read."""
        return Delivery(Internals(claimed, body, now, self._longest), self._engine, self._settles)

    def read(self, claim: Claim, asked: Asked | None = None, readers: Mapping[str, Reader] = NO_READERS) -> Read:
        """A message whose body can't be read goes to the dead letters, where people can look at it.

        asked: the claim is looked after under its name. If its answer was late, what others have taken back is left out.
        readers: by topic. Where one can read the arguments of a handler, the body is not read until somebody asks for it.
        """
        if asked is not None and asked.late and claim.messages:
            claim = self._still_held(claim, asked.lease_ms)
        at_work = None
        if self._subscriptions.heard:
            self._subscriptions.begun(claim.messages, claim.now)
            at_work = time.monotonic()
        codec, limit, messages = self._envelope.codec, self._envelope.max_body, claim.messages
        usable = readers if codec is JSON else NO_READERS
        if isinstance(messages, Lot) and (read := _arguments(messages, usable, limit)) is not None:
            return Read(messages, read, [UNREAD] * len(read), claim.now, at_work)
        known, arguments, bodies = list[Claimed](), list[dict[str, Any] | None](), list[Any]()
        for claimed in messages:
            reader = usable.get(claimed.topic)
            given = reader(claimed.body) if reader is not None and len(claimed.body) <= limit else None
            try:
                body = UNREAD if given is not None else decode(codec, claimed.body, limit)
            except BadMessage as error:
                _log.error("Message %s of %s can't be read and is buried: %s", claimed.id, claimed.topic, error)
                self._bury(claimed, str(error), claim.now)
            else:
                known.append(claimed)
                arguments.append(given)
                bodies.append(body)
        return Read(known, arguments, bodies, claim.now, at_work)

    def _bury(self, claimed: Claimed, reason: str, now: int) -> None:
        """What can't be buried now must not keep those that came with it from being handled."""
        try:
            trace = record_of(claimed.attempt, now, reason)
            self._settles.add(End(claimed.topic, claimed.id, claimed.token, "dead", 0, reason, trace=trace))
        except EngineError as error:
            _log.warning("Message %s could not be buried now and comes back when its lease ends: %s", claimed.id, error)

    def _still_held(self, claim: Claim, lease_ms: int) -> Claim:
        """Without what was taken back by others, since the answer has waited for so long."""
        holds = [Hold(each.topic, each.id, each.token) for each in claim.messages]
        answers = self._engine.extend(holds, lease_ms, brief=True)
        if lost := answers.count(False):
            _log.warning("A claim was answered after its leases had ended: %s left to others", plural(lost, "message"))
        return replace(claim, messages=[each for each, held in zip(claim.messages, answers, strict=True) if held])


def _arguments(lot: Lot, readers: Mapping[str, Reader], limit: int) -> list[dict[str, Any] | None] | None:
    """Those of all of its messages; None where one of them can't be read like this."""
    topics = set(lot.topics)
    if not readers.keys() >= topics:
        return None
    bodies = lot.bodies()
    if max(map(len, bodies)) > limit:
        return None
    if len(topics) == 1:
        found = list(map(readers[topics.pop()], bodies))
    else:
        found = [reader(body) for reader, body in zip(map(readers.__getitem__, lot.topics), bodies, strict=True)]
    return None if None in found else found


T = TypeVar("T")
Place: TypeAlias = deque[Delivery]
"""Deliveries of one taker. Whoever takes one out has it, and does so one at a time: a close may come from another thread."""


class Fresh:
    """A delivery is in a claim that is under way, or in a place, until its user has it or it goes back. So a close finds it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._pid = os.getpid()
        self._new_request = requests()
        self._claims: dict[str, object] = {}  # under way, by their names: who waits for them
        self._unanswered: set[str] = set()  # names of claims
        self._returning: list[object] = []  # who gives something back now
        self._cut_short: deque[End] = deque()  # what somebody was giving back who was cancelled: to be done again
        self._places: dict[int, Place] = {}
        self._closed = False

    def new_place(self) -> Place:
        """Of a listener or a receive, until it leaves. A close gives back what it finds there."""
        place: Place = deque()
        self._places[id(place)] = place
        return place

    def leave(self, place: Place) -> None:
        """What is still in it, since an interruption came before it went back, a close gives back."""
        if not place:
            del self._places[id(place)]

    @property
    def closed(self) -> bool:
        """Whether the queue is closed."""
        return self._closed

    def check(self) -> None:
        if self._closed:
            raise Unavailable("The queue is closed: make a new one.")

    def begin_claim(self) -> str:
        """Gives its name. A close waits until it has come or failed."""
        request = self._new_request()
        self._claims[request] = Affinity.caller()
        if self._closed:  # perhaps before it was entered: then nobody waits for it
            self._claims.pop(request, None)
            self.check()
        return request

    def came(self, request: str, place: Place) -> None:
        """What a claim brought is in its place. Raises Unavailable if the queue was closed: then nobody can end it."""
        asked_again = self._claims.pop(request, self) is self and request not in self._unanswered
        if self._closed:
            if asked_again:  # by the close, which has given back what it held then: that may have been nothing yet
                with suppress(BideError):
                    self._release(place)
            else:
                self.give_back(place)
            self.check()

    def failed(self, request: str, error: BaseException) -> None:
        """A claim has ended in an error, and may have taken something."""
        self._unanswered.add(request)
        try:
            if not isinstance(error, (BideError, GeneratorExit)):  # the engine may well answer now
                _briefly(self.give_back_unanswered)  # what does not succeed is done with the next claim, or at the end
        finally:
            self._claims.pop(request, None)

    def give_back_unanswered(self) -> None:
        """Ask for those claims again, which gives what they hold and nothing new, and release it; and what was cut short."""
        if self._unanswered or self._cut_short:
            with self._at_work():
                self._give_back_cut_short()
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
        given = len(place)
        try:
            self._release(place)
        except EngineError as error:
            _told(given, error)

    def _release(self, place: Place) -> None:
        if not place or os.getpid() != self._pid:  # a forked child leaves to its parent what that has
            return
        with self._at_work():
            given = [delivery._internals for delivery in taken_from(place)]
            try:
                for each in given:
                    each.mark_ended()
                if given:
                    self._engine.settle([each.end("release") for each in given])
            except BaseException as error:
                if not isinstance(error, BideError):
                    self._cut_short.extend(each.end("release") for each in given)
                raise

    def _give_back_cut_short(self) -> None:
        while ends := taken_from(self._cut_short, MAX_BATCH):
            try:
                self._engine.settle(ends)
            except EngineError as error:
                _told(len(ends), error)
            except BaseException:
                self._cut_short.extend(ends)
                raise

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """A close waits until it has ended."""
        caller = Affinity.caller()
        self._returning.append(caller)
        try:
            yield
        finally:
            self._returning.remove(caller)

    def close(self) -> None:
        """Give back what is in its place, and what claims bring that are under way: those of others it waits for, for SWEEP
        seconds. Those that hang, and one that it interrupts, are asked for again."""
        self._closed = True
        until = time.monotonic() + SWEEP
        try:
            self._wait_for_others(until)
            self._give_all_back()
            self._wait_for_others(until)  # they may give back what this one has not found
            self._give_all_back()  # if they were cut short
        except BaseException:  # cancelled: soon the engine is closed, also under claims
            _briefly(lambda: self._wait_for_others(until))
            _briefly(self._give_all_back)
            raise

    def _wait_for_others(self, until: float) -> None:
        ours = Affinity.caller()
        while any(each != ours for each in (*self._claims.values(), *self._returning)) and time.monotonic() < until:
            Signal().wait(NAP)

    def _give_all_back(self) -> None:
        for request in list(self._claims):
            self._unanswered.add(request)
            self._claims.pop(request, None)
        for place in list(self._places.values()):
            self.give_back(place)
        with suppress(BideError):
            self.give_back_unanswered()


def _told(count: int, error: EngineError) -> None:
    _log.warning("%s could not be given back, until the lease ends: %s", plural(count, "message"), error)


def _briefly(give_back: Callable[[], None]) -> None:
    with suppress(BideError, TimeoutError):
        _in_time(give_back)


def _in_time(give_back: Callable[[], None]) -> None:
    with Briefly(SOON):
        give_back()


def taken_from(place: deque[T], most: int = MAX_BATCH) -> list[T]:
    found: list[T] = []
    with suppress(IndexError):
        while len(found) < most:
            found.append(place.popleft())
    return found
