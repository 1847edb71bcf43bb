# Generated from ../aio/nodes.py by tools/unasync.py; change that file instead.
"""Where a shard's server is, when several can be: asked of Sentinels, or of the nodes of a Cluster, until it moves."""

import contextlib
import math
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import redis.exceptions as theirs

from bide.engines.redis.client import Endpoint, sentinel_address
from bide.engines.redis.failures import BRIEF, LOST, NodeRefused, SentinelRefused, absent, from_node, from_sentinel, refused
from bide.engines.redis.namespace import ServerClock
from bide.engines.redis.server import Server, hasty
from bide.engines.redis.topology import ServerPlace, SlotSpan, master_of, moved, slot_of, spans
from bide.errors import ConfigError
from bide.rounds import Round

LOOK = 5.0  # seconds after which Sentinels are asked again, also when all seems well
SILENT = 30.0  # seconds in which one that did not answer is asked last
FIRST = 0  # the slot of a service, which has no slots


def _worse(one: Exception | None, other: Exception) -> Exception:
    """The one to tell: that somebody refuses us before all, that nothing is there only if that is so of all."""
    return one if one is not None and (refused(one) or absent(other)) else other


class Nodes(ABC):
    """What one engine knows of its servers."""

    def __init__(self, address: Endpoint, asked: Endpoint) -> None:
        """`asked`: as those are reached who know."""
        self._asker = Server(hasty(asked), ServerClock())
        self._seeds = address.seeds
        self._shown = address.shown
        self._doubted = True
        self._silent: dict[ServerPlace, float] = {}  # who did not answer, until when it is asked last

    def place_of(self, slot: int) -> ServerPlace:
        """The server that has the slot, as far as is known. Raises LOST when nobody knows."""
        known = self.known(slot)
        if known is not None and not self._doubted:
            return known
        self._doubted = False  # those who come meanwhile go by what was known
        try:
            self._look()
        except BaseException:
            self._doubted = True
            raise
        found = self.known(slot)
        if found is None:
            self._doubted = True
            raise theirs.ClusterDownError(f"no node has slot {slot}")
        return found

    def doubt(self, place: ServerPlace | None) -> None:
        """It did not do its work, so it may have gone, or another one has it now."""
        self._doubted = True
        if place is not None:
            self._silent[place] = time.monotonic() + SILENT

    @abstractmethod
    def known(self, slot: int) -> ServerPlace | None:
        """Where it is, if anybody ever said so."""

    @abstractmethod
    def _look(self) -> None:
        """Ask where everything is."""

    @abstractmethod
    def hear(self, slot: int, place: ServerPlace) -> None:
        """A server said that this one has the slot."""

    @abstractmethod
    def greet(self, connection: Any) -> None:
        """Check that a new connection leads where it should."""

    def _ask(self, place: ServerPlace, *commands: Sequence[str]) -> list[Any]:
        connection = None
        try:
            connection = self._asker.connect(place)
            for command in commands:
                self._asker.send(connection, *command)
            answers = [connection.read_response() for _ in commands]
        except LOST:
            self._silent[place] = time.monotonic() + SILENT
            raise
        finally:
            if connection is not None:
                self._asker.drop(connection)
        self._silent.pop(place, None)
        return answers

    def _in_turn(self, places: Sequence[ServerPlace]) -> list[ServerPlace]:
        """In any order, but last who did not answer lately."""
        turned = list(dict.fromkeys(places))
        random.shuffle(turned)
        return sorted(turned, key=self._is_silent)

    def _is_silent(self, place: ServerPlace) -> bool:
        return self._silent.get(place, 0.0) > time.monotonic()

    def _many(self, strange: Sequence[ConfigError]) -> bool:
        """Whether the URL is to blame, and not one server that was set up anew."""
        return len(strange) > len(self._seeds) / 2

    @staticmethod
    def of(address: Endpoint) -> "Nodes":
        return Sentinels(address) if address.service else Cluster(address)


class Sentinels(Nodes):
    def __init__(self, address: Endpoint) -> None:
        super().__init__(address, sentinel_address(address))
        self._service = address.service
        self._master: ServerPlace | None = None

    def known(self, slot: int) -> ServerPlace | None:
        return self._master

    def hear(self, slot: int, place: ServerPlace) -> None:
        self._master = place

    def _look(self) -> None:
        """The newest answer counts: one who is cut off with an old master goes on naming that."""
        found: list[tuple[int, ServerPlace]] = []
        strange: list[ConfigError] = []
        failed: Exception | None = None
        for sentinel in self._in_turn(self._seeds):
            if found and self._is_silent(sentinel):
                break  # it would cost a second each time
            try:
                [told] = self._ask(sentinel, ("SENTINEL", "MASTER", self._service))
            except (*LOST, theirs.ResponseError) as error:
                if refused(error):
                    failed = SentinelRefused(str(error))
                    continue
                why = from_sentinel(self._shown, self._service, str(error))
                if why is not None:
                    strange.append(why)
                elif not isinstance(error, theirs.ResponseError):
                    failed = _worse(failed, error)
                continue
            master = master_of(told)
            if master is not None:
                found.append(master)
        if not found:
            if self._master is None and self._many(strange):
                raise strange[0]
            raise failed or theirs.ConnectionError(f"no Sentinel knows the service {self._service}")
        self._master = max(found)[1]

    def greet(self, connection: Any) -> None:
        """A replica would answer what only looks, from the past."""
        self._asker.send(connection, "ROLE")
        try:
            role = connection.read_response()
        except theirs.NoPermissionError:
            return  # what writes finds out
        if role[0] != b"master":
            raise theirs.ReadOnlyError("the server is not the master any more")


class Cluster(Nodes):
    def __init__(self, address: Endpoint) -> None:
        super().__init__(address, address)
        self._spans: Sequence[SlotSpan] = ()
        self._heard: Mapping[int, ServerPlace] = {}  # of single slots, newer than the spans

    def known(self, slot: int) -> ServerPlace | None:
        if slot in self._heard:
            return self._heard[slot]
        return next((span.master for span in self._spans if span.first <= slot <= span.last), None)

    def hear(self, slot: int, place: ServerPlace) -> None:
        self._heard = {**self._heard, slot: place}

    def greet(self, connection: Any) -> None:
        """A node that does not have the slot says so itself."""

    def spans(self) -> Sequence[SlotSpan]:
        """Which node has which slots."""
        self._look()
        return self._spans

    def stored(self, tags: Sequence[str], field: str) -> list[bytes]:
        """What shards with these tags have stored in this field, where their nodes answer."""
        if not self._spans:
            with contextlib.suppress(*LOST, theirs.ResponseError):
                self._look()
        by_node: dict[ServerPlace, list[Sequence[str]]] = {}
        for tag in tags:
            if (place := self.known(slot_of(tag))) is not None:
                by_node.setdefault(place, []).append(("HMGET", f"{{{tag}}}:meta", field))
        places = [place for place in by_node if not self._is_silent(place)] or list(by_node)  # all seem so to who was held up
        told = Round(places, lambda place: self._ask(place, *by_node[place])).soon(BRIEF)
        return [each for answer in told if not isinstance(answer, Exception) for [each] in answer if each]

    def _look(self) -> None:
        """Ask one node after the other, until one says that all is well: one that is cut off knows only what was."""
        known = [place for span in self._spans for place in (span.master, *span.replicas)]
        places = self._in_turn([*known, *self._seeds])
        unheard = set(places)
        failed: Exception | None = None
        found: list[SlotSpan] | None = None
        strange: list[ConfigError] = []

        def ask(place: ServerPlace) -> list[Any]:
            return self._ask(place, ("CLUSTER", "INFO"), ("CLUSTER", "SLOTS"))

        def is_enough(place: ServerPlace, answer: list[Any] | Exception) -> bool:
            nonlocal failed, found
            unheard.discard(place)
            if isinstance(answer, Exception):
                if not isinstance(answer, (*LOST, theirs.ResponseError)):
                    raise answer
                why = from_node(self._shown, str(answer))
                if why is not None:
                    strange.append(why)
                failed = _worse(failed, NodeRefused(str(answer), str(place)) if refused(answer) else answer)
                return False
            info, told = answer
            sound = b"cluster_state:ok" in info
            if found is None or sound:
                found = spans(told, place)
            if sound:
                late = unheard.intersection(places[: places.index(place)])
                self._silent.update(dict.fromkeys(late, time.monotonic() + SILENT))
            return sound

        Round(places, ask).until(is_enough, BRIEF)
        if found == []:
            failed = theirs.ConnectionError("no node has slots, which `redis-cli --cluster create` gives them")
        if not found:
            if not self._spans and self._many(strange):
                raise strange[0]
            raise failed or theirs.ConnectionError("no node was named")
        self._spans, self._heard = found, {}


class Route(Server):
    """The server that has a shard now: whenever a connection is made, and until an error tells that it has gone."""

    def __init__(self, address: Endpoint, clock: ServerClock, nodes: Nodes, slot: int = FIRST) -> None:
        super().__init__(address, clock)
        self.follows: bool = True
        self._nodes = nodes
        self._slot = slot
        self._place: ServerPlace | None = None
        self._look_later()

    def connect(self, place: ServerPlace | None = None, within: float | None = None) -> Any:
        place = self._nodes.place_of(self._slot)
        self._follow(place)
        try:
            connection = super().connect(place, within)
        except LOST:
            self._nodes.doubt(place)
            raise
        try:
            self._nodes.greet(connection)
        except BaseException:
            self._nodes.doubt(place)
            self.drop(connection)
            raise
        return connection

    @property
    def place(self) -> str:
        place = self._place or self._nodes.known(self._slot)
        return self.shown if place is None else str(place)

    def hasty(self, seconds: float) -> "Route":
        return Route(hasty(self.address, seconds), self.clock, self._nodes, self._slot)

    def look_again(self) -> None:
        """A master that is cut off may answer as if all were well."""
        self._look_later()
        self._nodes.doubt(None)
        with contextlib.suppress(*LOST):
            self._follow(self._nodes.place_of(self._slot))

    def is_absent(self, error: BaseException) -> bool:
        return self._nodes.known(self._slot) is None and super().is_absent(error)

    def _look_later(self) -> None:
        """Only Sentinels know better; the nodes of a Cluster stop by themselves."""
        self.look_at: float = time.monotonic() + LOOK if self.address.service else math.inf

    def has_moved(self) -> bool:
        before = self._place
        self._nodes.doubt(self._place)
        with contextlib.suppress(*LOST):
            self._follow(self._nodes.place_of(self._slot))
        return self._place != before

    def learn(self, connection: Any, error: BaseException) -> bool:
        if connection is None:  # none was made, and `connect` has seen why
            return False
        place = ServerPlace(connection.host, connection.port)
        told = moved(error, place) if isinstance(error, theirs.MovedError) else None
        if told is not None:
            self._nodes.hear(*told)
            self._follow(told[1])
        elif place == self._place and not isinstance(error, (theirs.AskError, theirs.TryAgainError)):
            self._nodes.doubt(place)
        return told is not None

    def _follow(self, place: ServerPlace) -> None:
        """Connections to where the shard was are not used any more."""
        if place != self._place:
            self._place = place
            self.outdate()
