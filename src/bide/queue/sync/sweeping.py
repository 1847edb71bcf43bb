# Generated from ../aio/sweeping.py by tools/unasync.py; change that file instead.
"""Changing many messages of a topic, page by page. Each function yields how far it has come."""

import sys
from collections.abc import Generator, Sequence

from bide.core.amounts import plural
from bide.engines.base import MAX_BATCH, Ref, Stored
from bide.engines.sync import Engine
from bide.errors import BideError, ConfirmTimeout, OutcomeUnknown
from bide.queue.choosing import PAGE, Absent, Choice, Step, share
from bide.types import CancelResult, State


def chosen(
    engine: Engine, topic: str, state: State, choice: Choice, absent: Absent, most: int = sys.maxsize
) -> Generator[tuple[int, list[Stored]], None, None]:
    """Pages of messages: how many were looked at by then, and those of the page that are meant.

    `most`: how many are looked at. Dead letters that are requeued and die again meanwhile come behind all others.
    """
    seen, after = 0, None
    while seen < most:
        page = absent.heard(engine.scan(topic, state, min(PAGE, most - seen), after))
        seen, after = seen + len(page.messages), page.after
        yield seen, [each for each in page.messages if choice.takes(each)]
        if after is None:
            return


def count_dead(engine: Engine, topic: str, absent: Absent) -> int:
    """How many dead letters there are now. An engine that counts nothing is asked for all of them."""
    if engine.capabilities.inspect:
        return absent.heard(engine.stats(topic)).dead
    many = 0
    for seen, _ in chosen(engine, topic, "dead", Choice(None, 0), absent):
        many = seen
    return many


def last(steps: Generator[Step, None, None]) -> Step:
    """Do all of it. Raises OutcomeUnknown at the end if a server of several did not answer, refused, or did not confirm; and at
    once if a page fails after others were done.
    """
    step = Step()
    try:
        for each in steps:
            step = each
    except BideError as error:
        if not step.done:
            raise
        raise OutcomeUnknown(f"{plural(step.done, 'message')} done, then: {error}") from error
    step.check()
    return step


def requeue_named(engine: Engine, topic: str, ids: Sequence[str], delay: int, spread: int) -> Generator[Step, None, None]:
    step, absent = Step(), Absent()
    for first in range(0, len(ids), MAX_BATCH):
        part = ids[first : first + MAX_BATCH]
        step = _requeue(engine, topic, part, delay, share(len(ids), first, len(part), spread), step, absent)
        yield step
    yield absent.left_out(step)


def requeue_all(engine: Engine, topic: str, delay: int, spread: int) -> Generator[Step, None, None]:
    absent = Absent()
    total = count_dead(engine, topic, absent)
    step, more = Step(), True
    while more and step.done < total:
        count = min(MAX_BATCH, total - step.done)
        begin, over = share(total, step.done, count, spread)
        page = absent.heard(engine.requeue(topic, delay=delay + begin, over=over, limit=count))
        done, more = step.done + page.count, page.more
        step = Step(done, total, done, step.keyless + page.keyless)
        yield step
    yield absent.left_out(step)


def requeue_chosen(engine: Engine, topic: str, choice: Choice, delay: int, spread: int) -> Generator[Step, None, None]:
    """With a spread, they are counted first."""
    absent = Absent()
    total, step = count_dead(engine, topic, absent), Step()
    many = 0
    if spread:
        for _, found in chosen(engine, topic, "dead", choice, absent, total):
            many += len(found)
    for seen, found in chosen(engine, topic, "dead", choice, absent, total):
        part = [each.id for each in found]
        if part:
            step = _requeue(engine, topic, part, delay, share(many, step.asked, len(part), spread), step, absent)
        step = step._replace(seen=seen)
        yield step
    yield absent.left_out(step)


def _requeue(
    engine: Engine, topic: str, ids: Sequence[str], delay: int, place: tuple[int, int], step: Step, absent: Absent
) -> Step:
    begin, over = place
    page = absent.heard(engine.requeue(topic, ids, delay=delay + begin, over=over, limit=len(ids)))
    asked = step.asked + len(ids)
    return Step(asked, asked, step.done + page.count, step.keyless + page.keyless)


def purge_named(engine: Engine, topic: str, ids: Sequence[str]) -> Generator[Step, None, None]:
    step, absent = Step(), Absent()
    for first in range(0, len(ids), MAX_BATCH):
        part = ids[first : first + MAX_BATCH]
        page = absent.heard(engine.purge(topic, "dead", part))
        step = Step(first + len(part), first + len(part), step.done + page.count)
        yield step
    yield absent.left_out(step)


def purge_all(engine: Engine, topic: str, state: State) -> Generator[Step, None, None]:
    absent = Absent()
    done, total, more = 0, _stored(engine, topic, state, absent), True
    while more:
        page = absent.heard(engine.purge(topic, state, limit=max(1, min(MAX_BATCH, total - done))))
        done += page.count
        more = page.more and done < total
        yield Step(done, done, done)
    yield absent.left_out(Step(done, done, done))


def _stored(engine: Engine, topic: str, state: State, absent: Absent) -> int:
    """How many there are, where that is told exactly; else more than there can be."""
    if not engine.capabilities.inspect:
        return sys.maxsize
    stats = absent.heard(engine.stats(topic))
    told: int = getattr(stats, state)
    return sys.maxsize if stats.about else told


def purge_chosen(engine: Engine, topic: str, choice: Choice) -> Generator[Step, None, None]:
    step, absent = Step(), Absent()
    for seen, found in chosen(engine, topic, "dead", choice, absent):
        done = absent.heard(engine.purge(topic, "dead", [each.id for each in found])).count if found else 0
        step = Step(seen, step.asked + len(found), step.done + done)
        yield step
    yield absent.left_out(step)


def cancel_chosen(engine: Engine, topic: str, states: Sequence[State], choice: Choice) -> Generator[Step, None, None]:
    """What is scheduled comes first, or a message that falls due meanwhile would be in no page."""
    step, before, absent = Step(), 0, Absent()
    for state in states:
        for seen, found in chosen(engine, topic, state, choice, absent):
            told = _cancelled(engine, topic, [Ref(each.id) for each in found], absent) if found else []
            step = Step(
                before + seen,
                step.asked + len(found),
                step.done + told.count(CancelResult.CANCELLED),
                running=step.running + told.count(CancelResult.RUNNING),
            )
            yield step
        before = step.seen
    yield absent.left_out(step)


def _cancelled(engine: Engine, topic: str, refs: Sequence[Ref], absent: Absent) -> list[CancelResult]:
    """What became of messages that were pending a moment ago, where a server says so. One that refuses is not asked again."""
    asked = [ref for ref in refs if engine.part_of(ref) not in absent.refusing]
    if not asked:
        return []
    told, _ = _told(engine, asked, absent)
    known = [each for each in told if each is not None]
    left = [ref for ref, each in zip(asked, told, strict=True) if each is None]
    if not left or absent.heard(engine.stats(topic)).missing:
        return known
    told, error = _told(engine, left, absent)  # it answers again, or refuses
    if error is not None:
        parts = {engine.part_of(ref) for ref, each in zip(left, told, strict=True) if each is None}
        if not known and None in parts:
            raise error
        absent.refuse(parts, str(error))
    return [*known, *(each for each in told if each is not None)]


def _told(engine: Engine, refs: Sequence[Ref], absent: Absent) -> tuple[Sequence[CancelResult | None], BideError | None]:
    """What became of each, as far as it is known, and why it is not known of all."""
    try:
        return engine.cancel(refs), None
    except ConfirmTimeout as short:
        absent.short(str(short))
        return short.done, None
    except OutcomeUnknown as lost:
        return lost.done or [None] * len(refs), lost
    except BideError as error:
        return [None] * len(refs), error
