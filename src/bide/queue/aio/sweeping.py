# unasync: ../sync/sweeping.py
"""Changing many messages of a topic, page by page. Each function yields how far it has come."""

import sys
from collections.abc import AsyncGenerator, Sequence

from bide.core.amounts import plural
from bide.engines.aio import AsyncEngine
from bide.engines.base import MAX_BATCH, Ref, Stored
from bide.errors import BideError, ConfirmTimeout, OutcomeUnknown
from bide.queue.choosing import PAGE, Absent, Choice, Step, share
from bide.types import CancelResult, State


async def chosen(
    engine: AsyncEngine, topic: str, state: State, choice: Choice, absent: Absent, most: int = sys.maxsize
) -> AsyncGenerator[tuple[int, list[Stored]], None]:
    """Pages of messages: how many were looked at by then, and those of the page that are meant.

    `most`: how many are looked at. Dead letters that are requeued and die again meanwhile come behind all others.
    """
    seen, after = 0, None
    while seen < most:
        page = absent.heard(await engine.scan(topic, state, min(PAGE, most - seen), after))
        seen, after = seen + len(page.messages), page.after
        yield seen, [each for each in page.messages if choice.takes(each)]
        if after is None:
            return


async def count_dead(engine: AsyncEngine, topic: str, absent: Absent) -> int:
    """How many dead letters there are now. An engine that counts nothing is asked for all of them."""
    if engine.capabilities.inspect:
        return absent.heard(await engine.stats(topic)).dead
    many = 0
    async for seen, _ in chosen(engine, topic, "dead", Choice(None, 0), absent):
        many = seen
    return many


async def last(steps: AsyncGenerator[Step, None]) -> Step:
    """Do all of it. Raises OutcomeUnknown at the end if a server of several did not answer, refused, or did not confirm; and at
    once if a page fails after others were done.
    """
    step = Step()
    try:
        async for each in steps:
            step = each
    except BideError as error:
        if not step.done:
            raise
        raise OutcomeUnknown(f"{plural(step.done, 'message')} done, then: {error}") from error
    step.check()
    return step


async def requeue_named(
    engine: AsyncEngine, topic: str, ids: Sequence[str], delay: int, spread: int
) -> AsyncGenerator[Step, None]:
    step, absent = Step(), Absent()
    for first in range(0, len(ids), MAX_BATCH):
        part = ids[first : first + MAX_BATCH]
        step = await _requeue(engine, topic, part, delay, share(len(ids), first, len(part), spread), step, absent)
        yield step
    yield absent.left_out(step)


async def requeue_all(engine: AsyncEngine, topic: str, delay: int, spread: int) -> AsyncGenerator[Step, None]:
    absent = Absent()
    total = await count_dead(engine, topic, absent)
    step, more = Step(), True
    while more and step.done < total:
        count = min(MAX_BATCH, total - step.done)
        begin, over = share(total, step.done, count, spread)
        page = absent.heard(await engine.requeue(topic, delay=delay + begin, over=over, limit=count))
        done, more = step.done + page.count, page.more
        step = Step(done, total, done, step.keyless + page.keyless)
        yield step
    yield absent.left_out(step)


async def requeue_chosen(
    engine: AsyncEngine, topic: str, choice: Choice, delay: int, spread: int
) -> AsyncGenerator[Step, None]:
    """With a spread, they are counted first."""
    absent = Absent()
    total, step = await count_dead(engine, topic, absent), Step()
    many = 0
    if spread:
        async for _, found in chosen(engine, topic, "dead", choice, absent, total):
            many += len(found)
    async for seen, found in chosen(engine, topic, "dead", choice, absent, total):
        part = [each.id for each in found]
        if part:
            step = await _requeue(engine, topic, part, delay, share(many, step.asked, len(part), spread), step, absent)
        step = step._replace(seen=seen)
        yield step
    yield absent.left_out(step)


async def _requeue(
    engine: AsyncEngine, topic: str, ids: Sequence[str], delay: int, place: tuple[int, int], step: Step, absent: Absent
) -> Step:
    begin, over = place
    page = absent.heard(await engine.requeue(topic, ids, delay=delay + begin, over=over, limit=len(ids)))
    asked = step.asked + len(ids)
    return Step(asked, asked, step.done + page.count, step.keyless + page.keyless)


async def purge_named(engine: AsyncEngine, topic: str, ids: Sequence[str]) -> AsyncGenerator[Step, None]:
    step, absent = Step(), Absent()
    for first in range(0, len(ids), MAX_BATCH):
        part = ids[first : first + MAX_BATCH]
        page = absent.heard(await engine.purge(topic, "dead", part))
        step = Step(first + len(part), first + len(part), step.done + page.count)
        yield step
    yield absent.left_out(step)


async def purge_all(engine: AsyncEngine, topic: str, state: State) -> AsyncGenerator[Step, None]:
    absent = Absent()
    done, total, more = 0, await _stored(engine, topic, state, absent), True
    while more:
        page = absent.heard(await engine.purge(topic, state, limit=max(1, min(MAX_BATCH, total - done))))
        done += page.count
        more = page.more and done < total
        yield Step(done, done, done)
    yield absent.left_out(Step(done, done, done))


async def _stored(engine: AsyncEngine, topic: str, state: State, absent: Absent) -> int:
    """How many there are, where that is told exactly; else more than there can be."""
    if not engine.capabilities.inspect:
        return sys.maxsize
    stats = absent.heard(await engine.stats(topic))
    told: int = getattr(stats, state)
    return sys.maxsize if stats.about else told


async def purge_chosen(engine: AsyncEngine, topic: str, choice: Choice) -> AsyncGenerator[Step, None]:
    step, absent = Step(), Absent()
    async for seen, found in chosen(engine, topic, "dead", choice, absent):
        done = absent.heard(await engine.purge(topic, "dead", [each.id for each in found])).count if found else 0
        step = Step(seen, step.asked + len(found), step.done + done)
        yield step
    yield absent.left_out(step)


async def cancel_chosen(engine: AsyncEngine, topic: str, states: Sequence[State], choice: Choice) -> AsyncGenerator[Step, None]:
    """What is scheduled comes first, or a message that falls due meanwhile would be in no page."""
    step, before, absent = Step(), 0, Absent()
    for state in states:
        async for seen, found in chosen(engine, topic, state, choice, absent):
            told = await _cancelled(engine, topic, [Ref(each.id) for each in found], absent) if found else []
            step = Step(
                before + seen,
                step.asked + len(found),
                step.done + told.count(CancelResult.CANCELLED),
                running=step.running + told.count(CancelResult.RUNNING),
            )
            yield step
        before = step.seen
    yield absent.left_out(step)


async def _cancelled(engine: AsyncEngine, topic: str, refs: Sequence[Ref], absent: Absent) -> list[CancelResult]:
    """What became of messages that were pending a moment ago, where a server says so. One that refuses is not asked again."""
    asked = [ref for ref in refs if engine.part_of(ref) not in absent.refusing]
    if not asked:
        return []
    told, _ = await _told(engine, asked, absent)
    known = [each for each in told if each is not None]
    left = [ref for ref, each in zip(asked, told, strict=True) if each is None]
    if not left or absent.heard(await engine.stats(topic)).missing:
        return known
    told, error = await _told(engine, left, absent)  # it answers again, or refuses
    if error is not None:
        parts = {engine.part_of(ref) for ref, each in zip(left, told, strict=True) if each is None}
        if not known and None in parts:
            raise error
        absent.refuse(parts, str(error))
    return [*known, *(each for each in told if each is not None)]


async def _told(
    engine: AsyncEngine, refs: Sequence[Ref], absent: Absent
) -> tuple[Sequence[CancelResult | None], BideError | None]:
    """What became of each, as far as it is known, and why it is not known of all."""
    try:
        return await engine.cancel(refs), None
    except ConfirmTimeout as short:
        absent.short(str(short))
        return short.done, None
    except OutcomeUnknown as lost:
        return lost.done or [None] * len(refs), lost
    except BideError as error:
        return [None] * len(refs), error
