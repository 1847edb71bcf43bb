"""Which deliveries this process holds, of one namespace on a broker, and until when: leases are kept here, not by the broker.

The broker holds a delivery for as long as its channel is open. All queues of the process share one table for each place, so
that a heartbeat in another thread can renew what an event loop holds. Thread-safe.

The broker counts each delivery that was not acknowledged before its channel was gone. A message that ends its process is
counted like those that were in its hands by chance. So a message that was lost twice is handed out by itself: see `turn`.
"""

import os
import threading
import weakref
from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Mapping
from typing import Protocol

from bide.engines.base import Hold
from bide.engines.rabbitmq.broker_time import BrokerTime
from bide.engines.rabbitmq.label import LabelledDelivery

MOST = 100_000  # messages that are remembered
APART = 1_500  # ms between two messages that may be the cause: a neighbour that takes a second is done before
SUSPECT = 2  # deliveries in a row that were lost


class Losses:
    """Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[int, int]] = OrderedDict()  # id: the number of its copy, and how often it was lost
        self._last_turn = 0

    def note(self, delivered: LabelledDelivery) -> None:
        """This process lives, and has lost it with its connection."""
        id, copy = delivered.label.id, delivered.label.told
        with self._lock:
            self._known[id] = copy, delivered.known + 1
            self._known.move_to_end(id)
            if len(self._known) > MOST:
                self._known.popitem(last=False)

    def known(self, delivered: LabelledDelivery) -> int:
        """How many of the losses that the broker counts were noted here."""
        copy, times = self._known.get(delivered.label.id, (0, 0))
        return min(times, delivered.count) if copy == delivered.label.told else 0

    def turn(self, now: int) -> int:
        """When one more may come that has to be by itself: after those that were told so before."""
        with self._lock:
            self._last_turn = max(now, self._last_turn) + APART
            return self._last_turn


class Keeper(Protocol):
    """Whoever received a delivery, and can end it."""


class Channel(Protocol):
    @property
    def is_closed(self) -> bool: ...


class Arrived:
    """A delivery that the broker has made."""

    def __init__(self, delivered: LabelledDelivery, channel: Channel, tag: int, at: float, consumer: str | None = None) -> None:
        self.delivered = delivered
        self.channel = channel
        self.tag = tag  # the broker's number of the delivery, on its channel
        self.at = at  # monotonic: it must be given back in time
        self.consumer = consumer  # through which it came; None: it was asked for by itself


class Held:
    """A delivery that was claimed."""

    def __init__(self, arrived: Arrived, keeper: Keeper, request: str | None, began: int, until: int) -> None:
        self.arrived = arrived
        self.delivered: LabelledDelivery = arrived.delivered
        self.keeper = keeper
        self.request = request
        self.began = began  # engine time
        self.until = until


class Holdings:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: dict[str, Held] = {}  # by the id of the message
        self.time: BrokerTime = BrokerTime()
        self.losses: Losses = Losses()
        self.sound: bool = False  # whether the broker was found to lose nothing

    def add(self, held: Held) -> bool:
        """False: this message is held already, by another delivery."""
        with self._lock:
            return self._held.setdefault(held.delivered.label.id, held) is held

    def __contains__(self, id: str) -> bool:
        return id in self._held

    def held(self, id: str, told: int) -> Held | None:
        """The delivery of this message and number, if it is still held."""
        held = self._held.get(id)
        return held if held is not None and held.delivered.told == told else None

    def take(self, hold: Hold) -> Held | None:
        """The delivery, if it is still held. It is removed, since it is being ended."""
        with self._lock:
            held = self._find(hold)
            if held is not None:
                del self._held[hold.id]
            return held

    def put_back(self, held: Held) -> bool:
        """It could not be ended, so it is still held. False: a copy of it is held already."""
        return self.add(held)

    def extend(self, hold: Hold, until: int) -> bool:
        with self._lock:
            held = self._find(hold)
            if held is not None:
                held.until = until
            return held is not None

    def of_request(self, request: str) -> list[Held]:
        return [each for each in self._all() if each.request == request]

    def counts(self, channel: object) -> Mapping[str, int]:
        """How many deliveries of a channel are held, by the consumer through which they came."""
        return Counter(each.arrived.consumer or "" for each in self.of_channel(channel))

    def has_suspect(self) -> bool:
        """Whether a delivery is held of a message that may have ended the processes that had it before."""
        return any(each.delivered.lost >= SUSPECT for each in self._all())

    def of_channel(self, channel: object) -> list[Held]:
        return [each for each in self._all() if each.arrived.channel is channel]

    def take_ended(self, by: int, limit: int) -> list[Held]:
        """Those whose leases have ended; they are removed."""
        return self._take((each for each in self._all() if each.until <= by), limit)

    def drop(self, channel: object) -> None:
        """The channel is lost, and with it its deliveries: the broker gives them to others."""
        for held in self._take(self.of_channel(channel), None):
            self.losses.note(held.delivered)

    def _find(self, hold: Hold) -> Held | None:
        held = self._held.get(hold.id)
        if held is None or held.delivered.token != hold.token or held.delivered.label.topic != hold.topic:
            return None
        return held

    def _all(self) -> Collection[Held]:
        with self._lock:
            return list(self._held.values())

    def _take(self, wanted: Iterable[Held], limit: int | None) -> list[Held]:
        taken: list[Held] = []
        for held in wanted:
            if len(taken) == limit:
                break
            with self._lock:
                if self._held.get(held.delivered.label.id) is held:
                    del self._held[held.delivered.label.id]
                    taken.append(held)
        return taken

    def forked(self) -> None:
        """This process is a fork: what is held belongs to the other one, whose threads may have had the locks."""
        self._lock = threading.Lock()
        self._held = {}
        self.time = BrokerTime()
        self.losses = Losses()


_places: "weakref.WeakValueDictionary[tuple[str, ...], Holdings]" = weakref.WeakValueDictionary()
_lock = threading.Lock()


def holdings_at(place: tuple[str, ...]) -> Holdings:
    """The table of a place, which lives as long as somebody uses it."""
    with _lock:
        found = _places.get(place)
        if found is None:
            found = _places[place] = Holdings()
        return found


def _in_child() -> None:
    _lock.release()
    for each in list(_places.values()):
        each.forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_lock.acquire, after_in_parent=_lock.release, after_in_child=_in_child)
