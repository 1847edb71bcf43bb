# unasync: ../sync/topics.py
"""The queue's verbs for whole topics: counting, listing, requeueing, deleting, pausing."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from bide.clock import moment
from bide.core import options
from bide.core.times import bounded_instant_ms, check_delay, duration_ms
from bide.engines.base import MAX_BATCH, Window
from bide.errors import BadOption, BadTime
from bide.queue.aio import bulk
from bide.queue.aio.session import AsyncSession
from bide.queue.bulk import Choice
from bide.queue.envelope import info
from bide.queue.schedules.records import OWN
from bide.types import Duration, Page, Removed, Requeued, Span, State, Stats, Where


class AsyncTopicVerbs:
    """What AsyncQueue can do with whole topics."""

    session: AsyncSession

    async def topics(self) -> list[str]:
        """List the topics that have messages, are paused, or have dropped dead letters."""
        return sorted((await (await self.session.engine()).stats(but=OWN)).topics)

    async def messages(
        self,
        topic: str,
        *,
        state: State | None = None,
        limit: int = 100,
        after: str | None = None,
        where: Where | None = None,
    ) -> Page:
        """Return a page of a topic's messages: pending ones by due time, then leased ones, then dead ones in the order in which
        they died. For the next page, pass the page's `after`.

        With `where`, `limit` messages are looked at, and the page has those that it chooses. So a page may have none, although
        its `after` says that there are more.
        """
        name, which = options.topic(topic), None if state is None else options.state(state)
        most = options.count(limit, "limit", MAX_BATCH)
        mark = None if after is None else options.text(after, "after", 256)
        choice = None if where is None else self._choice(where)
        scanned = await (await self.session.engine()).scan(name, which, most, mark)
        found = scanned.messages if choice is None else [each for each in scanned.messages if choice.takes(each)]
        return Page([info(stored, self.session.setup.envelope) for stored in found], scanned.after, scanned.missing)

    async def stats(self, topic: str | None = None, *, due_within: Iterable[Duration] = ()) -> Stats:
        """Count messages by state, with the lateness of the oldest and the next due time. Without a topic: all together, and
        each topic.

        - due_within: times such as ["5m", "1d"]. `due_within` of the answer says how many messages fall due within each of
          them, from now on. It is an estimate where `about` says so.
        """
        name, but = (None, OWN) if topic is None else (options.topic(topic), ())
        within = _times(due_within)
        engine = await self.session.engine()
        stats = await engine.stats(name, but=but)
        if not within:
            return stats
        parts: dict[int, Stats] = {}
        begin, now = stats.next_due, await self.session.now()  # what is due by the engine's clock is before that
        for each in sorted(set(within)):
            if begin is not None and (end := now + each + 1) > begin:
                parts[each] = await engine.stats(name, but=but, window=Window(begin, end, 1, about=True))
                begin = end
        return _coming(stats, parts, within)

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
        stats = await (await self.session.engine()).stats(
            name, but=OWN if name is None else (), window=Window(begin, until, parts)
        )
        step = timedelta(milliseconds=until - begin) / parts
        first = moment(begin)
        return [Span(first + place * step, first + (place + 1) * step, count) for place, count in enumerate(stats.timeline)]

    async def requeue(
        self,
        topic: str,
        ids: Iterable[str] | None = None,
        *,
        where: Where | None = None,
        delay: Duration = 0,
        spread: Duration = 0,
    ) -> Requeued:
        """Schedule dead letters again, with all their attempts: those with these ids, those that `where` chooses, or all.

        They are due after the delay; with a spread one by one, evenly over that time.

        Returns how many. If a newer message holds a dead letter's key, it comes back without its key: `.keyless` counts these.
        `.gone` counts those that were named or chosen, and were no dead letters of the topic by then.

        Raises OutcomeUnknown if a server of several did not answer, or refused: what the others have is done. Raises
        ConfirmTimeout if all is done, and not all of it was confirmed.
        """
        name, wait, over = options.topic(topic), duration_ms(delay), duration_ms(spread, "spread")
        check_delay(wait + over, None, 0)
        named = _named(ids, where, f"requeue({topic!r}, [dead.id])")
        choice = None if where is None else self._choice(where)
        engine = await self.session.engine()
        if named is not None:
            steps = bulk.requeue_named(engine, name, named, wait, over)
        elif choice is not None:
            steps = bulk.requeue_chosen(engine, name, choice, wait, over)
        else:
            steps = bulk.requeue_all(engine, name, wait, over)
        step = await bulk.last(steps)
        return Requeued(step.done, step.keyless, step.asked)

    async def purge(self, topic: str, *, state: State, ids: Iterable[str] | None = None, where: Where | None = None) -> Removed:
        """Delete the messages of a topic that are in this state now: scheduled, ready or dead. Returns how many.

        Only those that `where` chooses, or only the dead letters with these ids; cancel a pending message by its id.

        Raises OutcomeUnknown if a server of several did not answer, or refused: what the others have is done. Raises
        ConfirmTimeout if all is done, and not all of it was confirmed.
        """
        name, which = options.topic(topic), options.state(state)
        named = _named(ids, where, f"purge({topic!r}, state='dead', ids=[dead.id])")
        choice = None if where is None else self._choice(where)
        engine = await self.session.engine()
        if named is not None and which == "dead":
            steps = bulk.purge_named(engine, name, named)
        elif named is not None:
            raise BadOption(f"ids name dead letters only, and state is {which!r}. Cancel a pending message by its id.")
        elif choice is None or which == "leased":  # which is refused
            steps = bulk.purge_all(engine, name, which)
        elif which == "dead":
            steps = bulk.purge_chosen(engine, name, choice)
        else:
            steps = bulk.cancel_chosen(engine, name, (which,), choice)
        step = await bulk.last(steps)
        return Removed(step.done, step.asked, step.running)

    async def cancel_all(self, topic: str, *, where: Where | None = None) -> Removed:
        """Cancel the pending messages of a topic that `where` chooses, or all. Returns how many will never be delivered.

        `.running` is the number of those that a worker has received meanwhile: they go on.

        Raises OutcomeUnknown if a server of several did not answer, or refused: what the others have is done. Raises
        ConfirmTimeout if all is done, and not all of it was confirmed.
        """
        name, choice = options.topic(topic), self._choice(where)
        engine = await self.session.engine()
        step = await bulk.last(bulk.cancel_chosen(engine, name, ("scheduled", "ready"), choice))
        return Removed(step.done, step.asked, step.running)

    async def pause(self, topic: str) -> None:
        """Deliver no messages of a topic until it is resumed. Running handlers go on.

        Raises OutcomeUnknown if a server of several did not answer, or refused: the topic is paused on the others.
        """
        name = options.topic(topic)
        await (await self.session.engine()).pause(name, True)

    async def resume(self, topic: str) -> None:
        """Deliver a topic's messages again."""
        name = options.topic(topic)
        await (await self.session.engine()).pause(name, False)

    def _choice(self, where: Where | None) -> Choice:
        return Choice(where, self.session.setup.now_ms())


def _times(due_within: Iterable[Duration]) -> list[int]:
    """In milliseconds."""
    if isinstance(due_within, str | int | float | timedelta):
        raise BadOption(f"due_within is a {type(due_within).__name__}. Give a list: due_within=['5m', '1d'].")
    times = [duration_ms(each, "due_within") for each in due_within]
    if not all(times):
        raise BadTime("due_within has a time of 0. What is due now is `ready`.")
    return times


def _coming(stats: Stats, parts: Mapping[int, Stats], within: Sequence[int]) -> Stats:
    """`parts`: what falls due between one of the times and the one before it, as far as there is anything."""

    def told(topic: str | None) -> list[int]:
        found = {each: part if topic is None else part.topics.get(topic, Stats()) for each, part in parts.items()}
        counts = {each: sum(part.timeline) for each, part in found.items()}
        return [sum(count for time, count in counts.items() if time <= each) for each in within]

    def about(topic: str | None) -> bool:
        return any((each if topic is None else each.topics.get(topic, Stats())).about for each in (stats, *parts.values()))

    topics = {topic: replace(each, due_within=told(topic), about=about(topic)) for topic, each in stats.topics.items()}
    missing = sorted({server for each in (stats, *parts.values()) for server in each.missing})
    return replace(stats, due_within=told(None), topics=topics, about=about(None), missing=missing)


def _named(ids: Iterable[str] | None, where: Where | None, example: str) -> list[str] | None:
    """Each id once."""
    if ids is None:
        return None
    if where is not None:
        raise BadOption("Both ids and where were given. Give one: a list of ids, or Where(…).")
    if isinstance(ids, str | bytes):  # each of its characters would be an id that nothing has
        raise BadOption(f"ids is a {type(ids).__name__}. Give a list of ids: {example}.")
    return list(dict.fromkeys(options.text(each, "id", 128) for each in ids))
