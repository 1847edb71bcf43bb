# Generated from ../aio/bulk.py by tools/unasync.py; change that file instead.
"""Changes of many messages of a topic, page by page. Each function yields how far it has come."""

import sys
from collections.abc import Callable, Generator, Hashable, Sequence
from functools import partial
from typing import TypeAlias

from bide.core.formats import plural
from bide.engines.base import MAX_BATCH, Ref, Stored, Swept, as_one
from bide.engines.sync import Engine
from bide.errors import BideError, ConfirmTimeout, OutcomeUnknown
from bide.queue.bulk import PAGE, Choice, LeftOut, Progress, share
from bide.rounds import Round
from bide.types import CancelResult, State

Told: TypeAlias = tuple[Progress, Sequence[str], BideError | None]
"""What a change of messages did, of which of them that is not known, and why."""


def chosen(
    engine: Engine, topic: str, state: State, choice: Choice, absent: LeftOut, most: int = sys.maxsize
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


def count_dead(engine: Engine, topic: str, absent: LeftOut) -> int:
    """How many dead letters there are now. An engine that counts nothing is asked for all of them."""
    if engine.capabilities.inspect:
        return absent.heard(engine.stats(topic)).dead
    many = 0
    for seen, _ in chosen(engine, topic, "dead", Choice(None, 0), absent):
        many = seen
    return many


def last(steps: Generator[Progress, None, None]) -> Progress:
    """Do all of it. Raises OutcomeUnknown at the end if a server of several did not answer, refused, or did not confirm; and at
    once if a page fails after others were done.
    """
    step = Progress()
    try:
        for each in steps:
            step = each
    except BideError as error:
        if not step.done:
            raise
        raise OutcomeUnknown(f"{plural(step.done, 'message')} done, then: {error}") from error
    step.check()
    return step


def requeue_named(engine: Engine, topic: str, ids: Sequence[str], delay: int, spread: int) -> Generator[Progress, None, None]:
    step, absent = Progress(), LeftOut()
    for first in range(0, len(ids), MAX_BATCH):
        part = ids[first : first + MAX_BATCH]
        step = _requeue(engine, topic, part, delay, share(len(ids), first, len(part), spread), step, absent)
        yield step
    yield absent.left_out(step)


def requeue_all(engine: Engine, topic: str, delay: int, spread: int) -> Generator[Progress, None, None]:
    absent = LeftOut()
    total = count_dead(engine, topic, absent)
    most = sys.maxsize if absent.silent else total  # a server that is back has more
    step, more = Progress(), True
    while more and step.done < most:
        count = min(MAX_BATCH, most - step.done)
        begin, over = share(total, step.done, count, spread)
        page = absent.heard(engine.requeue(topic, delay=delay + begin, over=over, limit=count))
        done, more = step.done + page.count, page.more
        step = Progress(done, max(total, done), done, step.keyless + page.keyless)
        yield step
    yield absent.left_out(step)


def requeue_chosen(engine: Engine, topic: str, choice: Choice, delay: int, spread: int) -> Generator[Progress, None, None]:
    """With a spread, they are counted first."""
    absent = LeftOut()
    total, step = count_dead(engine, topic, absent), Progress()
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
    engine: Engine, topic: str, ids: Sequence[str], delay: int, place: tuple[int, int], step: Progress, absent: LeftOut
) -> Progress:
    begin, over = place

    def requeue(some: Sequence[str]) -> Told:
        again = partial(engine.requeue, topic, some, delay=delay + begin, over=over, limit=len(some))
        return _swept(again, some, absent)

    did = _changed(engine, ids, requeue, absent)
    asked = step.asked + len(ids)
    return Progress(asked, asked, step.done + did.done, step.keyless + did.keyless)


def purge_named(engine: Engine, topic: str, ids: Sequence[str]) -> Generator[Progress, None, None]:
    step, absent = Progress(), LeftOut()
    for first in range(0, len(ids), MAX_BATCH):
        part = ids[first : first + MAX_BATCH]
        asked = first + len(part)
        step = Progress(asked, asked, step.done + _purged(engine, topic, part, absent))
        yield step
    yield absent.left_out(step)


def purge_all(engine: Engine, topic: str, state: State) -> Generator[Progress, None, None]:
    absent = LeftOut()
    done, total, more = 0, _stored(engine, topic, state, absent), True
    while more:
        page = absent.heard(engine.purge(topic, state, limit=max(1, min(MAX_BATCH, total - done))))
        done += page.count
        more = page.more and done < total
        yield Progress(done, done, done)
    yield absent.left_out(Progress(done, done, done))


def _stored(engine: Engine, topic: str, state: State, absent: LeftOut) -> int:
    """How many there are, where that is told exactly; else more than there can be."""
    if not engine.capabilities.inspect:
        return sys.maxsize
    stats = absent.heard(engine.stats(topic))
    told: int = getattr(stats, state)
    return sys.maxsize if stats.about or stats.missing else told


def purge_chosen(engine: Engine, topic: str, choice: Choice) -> Generator[Progress, None, None]:
    step, absent = Progress(), LeftOut()
    for seen, found in chosen(engine, topic, "dead", choice, absent):
        done = _purged(engine, topic, [each.id for each in found], absent)
        step = Progress(seen, step.asked + len(found), step.done + done)
        yield step
    yield absent.left_out(step)


def _purged(engine: Engine, topic: str, ids: Sequence[str], absent: LeftOut) -> int:
    def purge(some: Sequence[str]) -> Told:
        return _swept(partial(engine.purge, topic, "dead", some), some, absent)

    return _changed(engine, ids, purge, absent).done


def cancel_chosen(engine: Engine, topic: str, states: Sequence[State], choice: Choice) -> Generator[Progress, None, None]:
    """What is scheduled comes first, or a message that falls due meanwhile would be in no page."""
    step, before, absent = Progress(), 0, LeftOut()

    def cancel(ids: Sequence[str]) -> Told:
        return _cancelled(engine, ids, absent)

    for state in states:
        for seen, found in chosen(engine, topic, state, choice, absent):
            did = _changed(engine, [each.id for each in found], cancel, absent)
            asked = step.asked + len(found)
            step = Progress(before + seen, asked, step.done + did.done, running=step.running + did.running)
            yield step
        before = step.seen
    yield absent.left_out(step)


def _changed(engine: Engine, ids: Sequence[str], change: Callable[[Sequence[str]], Told], absent: LeftOut) -> Progress:
    """What a change did of these messages. A part of the engine that refuses, or does not answer, keeps no other part from it,
    and is not asked again: what it may have done would be told as gone.
    """
    part_of = {id: engine.part_of(Ref(id)) for id in ids}
    asked = [id for id in ids if part_of[id] not in absent.parts]
    if not asked:
        return Progress()
    did, left, error = change(asked)
    parts = {part_of[id] for id in left}
    if error is not None:
        if None in parts:  # there is no other
            raise error
        absent.leave(parts, error)
    absent.did = absent.did or len(left) < len(asked)
    return did


def _swept(call: Callable[[], Swept], ids: Sequence[str], absent: LeftOut) -> Told:
    """What requeue or purge did of these messages."""
    try:
        page = absent.heard(call())
    except BideError as error:
        return Progress(), ids, error
    return Progress(done=page.count, keyless=page.keyless), (), None


def _cancelled(engine: Engine, ids: Sequence[str], absent: LeftOut) -> Told:
    """What became of messages that were pending a moment ago. Each part of the engine is asked in a call of its own, so that an
    error is about that part alone.
    """
    parts: dict[Hashable, list[str]] = {}
    for id in ids:
        parts.setdefault(engine.part_of(Ref(id)), []).append(id)

    def cancel(part: Sequence[str]) -> Told:
        return _cancelled_of(engine, part, absent)

    did, left, errors = Progress(), list[str](), list[BideError]()
    for told in Round(list(parts.values()), cancel).answers():
        if isinstance(told, Exception):
            raise told
        did, left = did.plus(told[0]), [*left, *told[1]]
        errors += [told[2]] if told[2] is not None else []
    return did, left, as_one(errors) if errors else None


def _cancelled_of(engine: Engine, ids: Sequence[str], absent: LeftOut) -> Told:
    """The same of one part."""
    answers: Sequence[CancelResult | None]
    failed: BideError | None = None
    try:
        answers = engine.cancel([Ref(id) for id in ids])
    except ConfirmTimeout as short:
        absent.short(str(short))
        answers = short.done
    except BideError as error:
        failed = error
        answers = (isinstance(error, OutcomeUnknown) and error.done) or [None] * len(ids)
    did = Progress(done=answers.count(CancelResult.CANCELLED), running=answers.count(CancelResult.RUNNING))
    return did, [id for id, answer in zip(ids, answers, strict=True) if answer is None], failed
