# unasync: ../sync/topics.py
"""The queue's verbs for whole topics: counting, listing, requeueing, deleting, pausing."""

import sys
from collections.abc import Iterable
from datetime import datetime, timedelta

from bide.clock import moment
from bide.core import options
from bide.core.when import bounded_instant_ms, duration_ms
from bide.engines.base import MAX_BATCH, Window
from bide.errors import BadOption, BadTime
from bide.queue.aio.session import AsyncSession
from bide.queue.envelope import info
from bide.types import Duration, Page, Requeued, Span, State, Stats


class AsyncTopicVerbs:
    """What AsyncQueue can do with whole topics."""

    session: AsyncSession

    async def topics(self) -> list[str]:
        """List the topics that have messages, are paused, or have dropped dead letters."""
        return sorted((await (await self.session.engine()).stats()).topics)

    async def messages(self, topic: str, *, state: State | None = None, limit: int = 100, after: str | None = None) -> Page:
        """Return a page of a topic's messages: pending ones by due time, then leased ones, then dead ones in the order in which
        they died. For the next page, pass the page's `after`.
        """
        name, which = options.topic(topic), None if state is None else options.state(state)
        most = options.count(limit, "limit", MAX_BATCH)
        mark = None if after is None else options.text(after, "after", 256)
        scanned = await (await self.session.engine()).scan(name, which, most, mark)
        return Page([info(stored, self.session.setup.envelope) for stored in scanned.messages], scanned.after)

    async def stats(self, topic: str | None = None) -> Stats:
        """Count messages by state, with the lateness of the oldest and the next due time. Without a topic: all together, and
        each topic.
        """
        name = None if topic is None else options.topic(topic)
        return await (await self.session.engine()).stats(name)

    async def timeline(
        self,
        topic: str | None = None,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        buckets: int = 60,
    ) -> list[Span]:
        """Count the messages that fall due in each of `buckets` equal spans, by default of the next hour.

        An instant before 1970 counts as 1970. Raises BadTime for one that is more than a hundred years away.
        """
        name, now = None if topic is None else options.topic(topic), self.session.setup.now_ms()
        begin = now if start is None else bounded_instant_ms(start, now, "start")
        until = begin + 3_600_000 if end is None else bounded_instant_ms(end, now, "end")
        parts = options.count(buckets, "buckets", 10_000)
        if until - begin < parts:
            raise BadTime(
                "end is not after start, or so close that a bucket would be under a millisecond. "
                "An instant before 1970 counts as 1970."
            )
        stats = await (await self.session.engine()).stats(name, window=Window(begin, until, parts))
        step = timedelta(milliseconds=until - begin) / parts
        first = moment(begin)
        return [Span(first + place * step, first + (place + 1) * step, count) for place, count in enumerate(stats.timeline)]

    async def requeue(self, topic: str, ids: Iterable[str] | None = None, *, delay: Duration = 0) -> Requeued:
        """Schedule dead letters again, with all their attempts: those with these ids, or all. Returns how many.

        If a newer message holds a dead letter's key, it comes back without its key. `.keyless` is the number of these.
        """
        name, wait = options.topic(topic), duration_ms(delay)
        if isinstance(ids, str | bytes):  # each of its characters would be an id that nothing has
            raise BadOption(f"ids is a {type(ids).__name__}. Give a list of ids: requeue({name!r}, [dead.id]).")
        engine = await self.session.engine()
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
        """Delete the messages of a topic that are in this state now: scheduled, ready or dead. Returns how many."""
        name, which = options.topic(topic), options.state(state)
        engine = await self.session.engine()
        stats = await engine.stats(name)
        done, total = 0, sys.maxsize if stats.about else getattr(stats, which)
        while True:
            page = await engine.purge(name, which, limit=max(1, min(MAX_BATCH, total - done)))
            done += page.count
            if not page.more or done >= total:
                return done

    async def pause(self, topic: str) -> None:
        """Deliver no messages of a topic until it is resumed. Running handlers go on."""
        name = options.topic(topic)
        await (await self.session.engine()).pause(name, True)

    async def resume(self, topic: str) -> None:
        """Deliver a topic's messages again."""
        name = options.topic(topic)
        await (await self.session.engine()).pause(name, False)
