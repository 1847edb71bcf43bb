# unasync: ../sync/topics.py
"""The verbs for whole topics, and for looking at what is stored."""

from collections.abc import Iterable
from datetime import datetime, timedelta

from bide.clock import moment
from bide.core import options
from bide.core.when import duration_ms, instant_ms
from bide.engines.base import MAX_BATCH, Window
from bide.errors import BadOption, BadTime
from bide.queue.aio.opened import AsyncOpened
from bide.queue.outgoing import info, ref
from bide.types import (
    Duration,
    Info,
    Page,
    Requeued,
    Sent,
    Span,
    State,
    Stats,
)


class AsyncTopics(AsyncOpened):
    """What can be seen and done from outside a delivery."""

    async def get(self, message: str | Sent | None = None, *, topic: str | None = None, key: str | None = None) -> Info | None:
        """What is stored about a message; None when it has ended."""
        which = ref(message, topic, key)
        [stored] = await (await self._engine()).get([which])
        return None if stored is None else info(stored, self._setup.envelope)

    async def topics(self) -> list[str]:
        """The topics that hold a message, are paused, or have dropped dead letters."""
        return sorted((await (await self._engine()).stats()).topics)

    async def messages(self, topic: str, *, state: State | None = None, limit: int = 100, after: str | None = None) -> Page:
        """A page of a topic: pending ones by due time, then leased, then dead ones as they died. Go on with its `after`."""
        name, which = options.topic(topic), None if state is None else options.state(state)
        most = options.count(limit, "limit", MAX_BATCH)
        mark = None if after is None else options.text(after, "after", 256)
        scanned = await (await self._engine()).scan(name, which, most, mark)
        return Page([info(stored, self._setup.envelope) for stored in scanned.messages], scanned.after)

    async def stats(self, topic: str | None = None) -> Stats:
        """Counts by state, how late the oldest is, and when the next is due: of a topic, or of all and each."""
        name = None if topic is None else options.topic(topic)
        return await (await self._engine()).stats(name)

    async def timeline(
        self,
        topic: str | None = None,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        buckets: int = 60,
    ) -> list[Span]:
        """How many messages fall due when; from now for an hour unless you say otherwise."""
        name = None if topic is None else options.topic(topic)
        begin = self._setup.now_ms() if start is None else instant_ms(start, "start")
        until = begin + 3_600_000 if end is None else instant_ms(end, "end")
        parts = options.count(buckets, "buckets", 10_000)
        if until - begin < parts:
            raise BadTime("end is not after start, or so close that a bucket would be under a millisecond.")
        stats = await (await self._engine()).stats(name, window=Window(begin, until, parts))
        step = timedelta(milliseconds=until - begin) / parts
        first = moment(begin)
        return [Span(first + place * step, first + (place + 1) * step, count) for place, count in enumerate(stats.timeline)]

    async def requeue(self, topic: str, ids: Iterable[str] | None = None, *, delay: Duration = 0) -> Requeued:
        """Give dead letters a new life with all their attempts: those named, or all that are dead now. How many.

        One whose key a newer message holds comes back without it: `.keyless` says how many did.
        """
        name, wait = options.topic(topic), duration_ms(delay)
        if isinstance(ids, str | bytes):  # each of its characters would be an id that nothing has
            raise BadOption(f"ids is a {type(ids).__name__}. Give a list of ids: requeue({name!r}, [dead.id]).")
        engine = await self._engine()
        if ids is not None:
            named = [options.text(each, "id", 128) for each in ids]
            parts = [named[first : first + MAX_BATCH] for first in range(0, len(named), MAX_BATCH)]
            pages = [await engine.requeue(name, part, delay=wait) for part in parts]
            return Requeued(sum(page.count for page in pages), sum(page.keyless for page in pages))
        done, keyless, total = 0, 0, (await engine.stats(name)).dead
        while done < total:
            page = await engine.requeue(name, delay=wait, limit=min(MAX_BATCH, total - done))
            done, keyless = done + page.count, keyless + page.keyless
            if not page.more:
                break
        return Requeued(done, keyless)

    async def purge(self, topic: str, *, state: State) -> int:
        """Drop the messages of a topic that are in this state now; leased ones can't be. How many."""
        name, which = options.topic(topic), options.state(state)
        engine = await self._engine()
        stats = await engine.stats(name)
        done, total = 0, getattr(stats, which)
        while True:
            page = await engine.purge(name, which, limit=max(1, min(MAX_BATCH, total - done)))
            done += page.count
            if not page.more or done >= total:
                return done

    async def pause(self, topic: str) -> None:
        """Hand out none of a topic's messages until it is resumed; what is being worked on goes on."""
        name = options.topic(topic)
        await (await self._engine()).pause(name, True)

    async def resume(self, topic: str) -> None:
        """Hand out a topic's messages again."""
        name = options.topic(topic)
        await (await self._engine()).pause(name, False)
