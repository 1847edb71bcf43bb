"""Who may run: how many messages of which topics a worker may take now. Pure counting; it asks nobody and waits for nothing."""

import random
import time
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from bide.core import options
from bide.core.formats import plural
from bide.engines.base import MAX_BATCH, SWEEP
from bide.errors import BadOption

NONE: Mapping[str, int] = MappingProxyType({})
BUSY = 0.025  # seconds until a topic is asked for again of which nothing may run; then four times as long, up to
BUSIEST, BUSIEST_FOR_PLACE = 6.0, 2.0
AHEAD = 500  # messages: many enough for speed, and few enough to come back from a process that is killed


class Ask(NamedTuple):
    """What to claim next: up to so many messages, of any of these topics."""

    topics: Sequence[str]
    limit: int


class LimitedTopic:
    """How much of a topic to ask for that has a limit over all workers: a little first, and more while all of it may run.

    Where there is less to do than the workers could, they need not all ask for it again and again. A worker that comes for
    nothing pauses, four times as long each time, and a quarter less when it got something. So most workers soon look only now
    and then, as long as another one takes all there is.
    """

    def __init__(self, most: int) -> None:
        self.until: float = 0.0  # by time.monotonic(): nothing before
        self._most = most
        self._next = 1
        self._pause = 0.0
        self._got = False  # something since the last pause
        self._asking = False  # and not answered yet
        self._early = False  # before the time that it was told, in case the server's clock has jumped there
        self.held_back: bool = False  # it had reached its limit, and nobody asked since that was over
        self._for_place = False  # it was refused a place, which whoever has one here may leave any time

    def room(self, held: int) -> int:
        if self._left > 0 or (self._asking and self._pause):
            return 0
        self.held_back = False
        return max(0, min(self._next, self._most - held))

    @property
    def _left(self) -> float:
        return self.until - time.monotonic()

    def wait(self) -> float | None:
        """Seconds until it is to be asked for again, 0 if that is over by now; while that is to be told, until a look whether
        it was. None: it is not held back.
        """
        least = BUSY if self._asking else 0.0
        return max(least, self._left) if self._asking or self.held_back else None

    def taken(self) -> None:
        """Messages were claimed; whether they may run is to be told."""
        self._asking = True

    def passed(self, count: int, wait: float | None) -> None:
        """So many may run of what was claimed. `wait`: others may not, for so many seconds; 0: until there is a place."""
        self._asking, self._got = False, self._got or count > 0
        if wait is None:
            self._next = min(max(self._next, 2 * count), self._most)
            return
        self.held_back = True
        self._next, self._for_place = max(1, count), not wait
        early, self._early = self._early, wait > SWEEP
        if self._got:
            self._pause = self._pause * 3 / 4 if self._pause > BUSY else 0.0
        elif not early:
            self._pause = min(max(BUSY, 4 * self._pause), BUSIEST_FOR_PLACE if self._for_place else BUSIEST)
        self._got = False
        least = BUSY if self._for_place else 0.0
        self.until = time.monotonic() + max(min(wait, SWEEP), least, self._pause * random.uniform(0.75, 1.25))

    def given_back(self) -> None:
        """One of its messages is here no more, and may have gone without being told whether it may run."""
        self._asking = False

    def place_left(self) -> None:
        """There may be a place over all workers, since one was left here."""
        if self._for_place:
            self.until = 0.0


class Batched:
    """How many places the messages of a topic take that are handled in batches: one a batch, also for one that gathers."""

    def __init__(self, size: int) -> None:
        self._size = size
        self.gathering: int = 0  # messages that have not begun
        self.running: int = 0  # batches

    @property
    def places(self) -> int:
        return self.running + -(-self.gathering // self._size)

    def room(self, places: int) -> int:
        """Messages that fit into the batch that gathers, and into so many places."""
        return -self.gathering % self._size + places * self._size


class Slots:
    """A handler holds a place while it runs; a sync one holds a thread too.

    `slots` are kept for their topics, with threads if they are sync; the rest is shared. Of what is shared, one topic
    alone may hold no more than nine tenths while there are others, so that a hundred slow messages of one never shut
    the door on the rest.
    """

    def __init__(
        self,
        topics: Collection[str],
        in_threads: Collection[str],
        *,
        concurrency: int,
        threads: int,
        slots: Mapping[str, int],
        limited: Mapping[str, int] = NONE,
        batches: Mapping[str, int] = NONE,
    ) -> None:
        """`limited`: topics that are limited over all workers, with how many of each may run at once, at most.

        `batches`: topics whose messages are handled in batches, with the largest size.
        """
        self._kept = _checked(slots, topics, concurrency)
        _check_threads(self._kept, in_threads, threads)
        self._in_threads = frozenset(in_threads)
        self._held: dict[str, int] = dict.fromkeys(topics, 0)
        self._free = concurrency - sum(self._kept.values())  # of what is shared
        self._free_threads = threads - sum(self._kept.get(topic, 0) for topic in in_threads)
        most, most_in_threads = _most_of_one(self._free, len(topics)), _most_of_one(self._free_threads, len(in_threads))
        self._most = {topic: min(most, most_in_threads) if topic in self._in_threads else most for topic in topics}
        self._limited = {topic: LimitedTopic(most) for topic, most in limited.items()}
        self._batched = {topic: Batched(size) for topic, size in batches.items()}
        apart = [topic for topic in topics if topic in batches or (topic in limited and topic not in self._kept)]
        alike = [
            [each for each in topics if each not in in_threads and each not in apart],
            [each for each in in_threads if each not in apart],
        ]
        self.groups: list[tuple[str, ...]] = [
            *((each,) for each in [*self._kept, *apart]),
            *(tuple(each) for each in alike if each),
        ]
        self._shared = self._free  # places
        self._alike = len(self.groups) == 1 and not self._kept and not apart  # so one claim is for all that there is
        self._turn = 0
        self.without_threads: bool = False  # the machine has none to give now: nothing is taken for sync tasks

    def in_turn(self) -> list[int]:
        """The groups, those with slots first: of the others each is first in its turn, or it would get what is left over."""
        self._turn += 1
        kept, shared = range(len(self._kept)), range(len(self._kept), len(self.groups))
        first = self._turn % max(1, len(shared))
        return [*kept, *shared[first:], *shared[:first]]

    @property
    def beyond(self) -> int:
        """How many more messages are held than there are places for, where they may be claimed ahead."""
        return max(0, -self._free) if self._alike else 0

    def may_begin(self, left: Iterable[str]) -> dict[str, int]:
        """How many of those that have not begun may, of each topic; empty if all may. `left`: the topic of each."""
        excess = {topic: held - most for topic, most in self._most.items() if (held := self._held[topic]) > most}
        return {topic: count - excess.get(topic, 0) for topic, count in Counter(left).items()} if excess and self._alike else {}

    def ask(self, group: int, room: int = MAX_BATCH, *, ahead: bool = False) -> Ask:
        """What may be claimed for a group: a topic with slots of its own, or all that run alike. A limit of 0: nothing.

        `room`: for so many handlers, unless they have batches. `ahead`: handlers need no place, as they end at once; so much is
        claimed that the next claim can be answered before they have been called, where all that there is runs alike.
        """
        topics = self.groups[group]
        if ahead and self._alike and self._shared - self._free <= AHEAD:
            return Ask(topics, min(room, AHEAD))
        in_threads = topics[0] in self._in_threads
        asked, held = self._ask(group, topics, in_threads), self._held[topics[0]]
        batched = self._batched.get(topics[0])
        if batched is not None:
            asked, held = Ask(topics, batched.room(asked.limit)), batched.gathering
        else:
            asked = Ask(asked.topics, min(asked.limit, room))
        if (limited := self._limited.get(topics[0])) is not None:
            asked = Ask(asked.topics, min(asked.limit, limited.room(held)))
        return Ask(topics, 0) if in_threads and self.without_threads else asked

    def _ask(self, group: int, topics: tuple[str, ...], in_threads: bool) -> Ask:
        if group < len(self._kept):
            return Ask(topics, max(0, self._kept[topics[0]] - self._held[topics[0]]))
        limit = min(self._free, self._free_threads) if in_threads else self._free
        asked: list[str] = []
        for topic in topics:
            room = self._most[topic] - max(0, self._held[topic] - self._kept.get(topic, 0))
            if room > 0:
                asked.append(topic)
                limit = min(limit, room)
        return Ask(tuple(asked), max(0, limit) if asked else 0)

    def passed(self, topic: str, count: int, wait: float | None) -> None:
        """How far the limit of a topic has let its messages pass: as in `LimitedTopic`."""
        self._limited[topic].passed(count, wait)

    def place_left(self, topic: str) -> None:
        """A message has left its places at the gates of its task."""
        if topic in self._limited:
            self._limited[topic].place_left()

    def held_back(self) -> list[int]:
        """The groups of topics that had reached their limits, and were not asked for since that was over."""
        return [
            group
            for group, topics in enumerate(self.groups)
            if topics[0] in self._limited and self._limited[topics[0]].held_back
        ]

    def held_up(self) -> float | None:
        """Seconds until a topic is to be asked for again that has reached its limit; None when there is none."""
        return min((wait for each in self._limited.values() if (wait := each.wait()) is not None), default=None)

    def take(self, topic: str, count: int = 1) -> None:
        """Places for the handlers of so many messages."""
        batched = self._batched.get(topic)
        if topic in self._limited:
            self._limited[topic].taken()
        if batched is None:
            self._hold(topic, count)
        else:
            self._change(topic, batched, gathering=count)

    def give_back(self, topic: str, count: int = 1) -> None:
        """The places of so many messages. One that is handled in a batch does not begin."""
        if topic in self._limited:
            self._limited[topic].given_back()
        if topic in self._batched:
            self._change(topic, self._batched[topic], gathering=-count)
        else:
            self._hold(topic, -count)

    def begin_batch(self, topic: str, messages: int) -> None:
        self._change(topic, self._batched[topic], gathering=-messages, running=1)

    def end_batch(self, topic: str) -> None:
        self._change(topic, self._batched[topic], running=-1)

    def _change(self, topic: str, batched: Batched, *, gathering: int = 0, running: int = 0) -> None:
        before = batched.places
        batched.gathering += gathering
        batched.running += running
        self._hold(topic, batched.places - before)

    def _hold(self, topic: str, count: int) -> None:
        """So many places more, or fewer. A topic takes its own slots first, and then of those that are shared."""
        held, kept = self._held[topic], self._kept.get(topic, 0)
        self._held[topic] = held + count
        shared = max(0, held + count - kept) - max(0, held - kept)
        self._free -= shared
        if topic in self._in_threads:
            self._free_threads -= shared


def _most_of_one(places: int, topics: int) -> int:
    return places if topics < 2 or places < 2 else places * 9 // 10


def _checked(slots: Mapping[str, int], topics: Collection[str], concurrency: int) -> dict[str, int]:
    kept = {topic: options.count(number, f"slots[{topic!r}]", 10_000) for topic, number in slots.items()}
    for topic in kept:
        if topic not in topics:
            raise BadOption(
                f"slots keeps places for {topic!a}, which this worker does not serve: name a topic that has a task."
            )
    if sum(kept.values()) > concurrency - (len(topics) > len(kept)):
        raise BadOption(
            f"slots keeps {plural(sum(kept.values()), 'place')} of {concurrency}: leave at least one for the other topics."
        )
    return kept


def _check_threads(slots: Mapping[str, int], in_threads: Collection[str], threads: int) -> None:
    kept = sum(slots.get(topic, 0) for topic in in_threads)
    if kept > threads - any(topic not in slots for topic in in_threads):
        raise BadOption(
            f"slots keeps {plural(kept, 'place')} for sync tasks, of {plural(threads, 'thread')}: keep fewer, or give more "
            "threads=, at least one for the other sync tasks."
        )
