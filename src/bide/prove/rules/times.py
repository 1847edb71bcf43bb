"""When and where messages may be handed out: never early, not from a paused topic, and only to receivers of their topic.

Early is judged by the engine's own times, by what was asked for, and by this machine's clock if no clock was set. An instant
is also judged by the server's wall clock, if the histories tell when that was set.
"""

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from bide.prove.facts import NEVER, Act, DeliveryFacts, Facts, MessageFacts, Send
from bide.prove.report import Findings, Terms

MS = 1_000_000


class Setter(NamedTuple):
    """Something that gave a message a due time."""

    began: int
    ended: int
    least: int  # the due time was no sooner than this, by the engine's clock
    real: int  # nor than this, by the machine's
    wall: int = 0  # nor than this, by the server's wall clock as it then stands
    made: bool = False  # it made the message: all others came later
    token: str | None = None  # of the delivery that it ended
    undone: bool = False  # or may be, by a server that went back


def slack(span: int) -> int:
    """How far two clocks that nobody has set may come apart in so many nanoseconds; and what rounding adds."""
    return 2 * MS + max(0, span) // 1_000


def judge(facts: Facts, terms: Terms, found: Findings) -> None:
    for message in facts.messages.values():
        if not message.deliveries:
            continue
        setters = list(_setters(facts, message, terms))
        for delivered in message.deliveries:
            if delivered.now < delivered.due:
                what = f"{delivered.due - delivered.now} ms before its time, {delivered.due}"
                found.broken("never early", message.id, f"came out {what}, with the token {delivered.token}")
            if delivered.foreign:
                found.broken("isolation", message.id, f"of {delivered.topic} came to a receiver of other topics")
            if facts.topics and (acts := facts.topics.get(delivered.topic)) and _in_a_pause(facts, delivered, acts):
                found.broken("pause", message.id, f"came out of {delivered.topic} while it was paused: {delivered.token}")
            _judge(facts, message, delivered, setters, terms, found)


def _judge(
    facts: Facts, message: MessageFacts, delivered: DeliveryFacts, setters: list[Setter], terms: Terms, found: Findings
) -> None:
    may = [each for each in setters if _may_hold(each, delivered, setters)]
    if not may:
        return
    least = min(each.least for each in may)
    called = any(act.op == "call" and act.possible and act.began < delivered.ended for act in message.acts)
    if (delivered.now if called else delivered.due) < least:
        found.broken("never early", message.id, f"came out as due at {delivered.due}; it was to be due at {least} or later")
    real = min(each.real for each in may)
    if terms.steady and delivered.ended < real - slack(real - min(each.began for each in may)):
        early = (real - delivered.ended) / MS
        found.broken("never early", message.id, f"came out {early:.1f} ms early by this machine's clock: {delivered.token}")
    wall = min(each.wall for each in may)
    shown = _shown(facts, max(delivered.began, min(each.began for each in may)), delivered.ended) if wall else None
    if shown is not None and shown < wall and not _put_aside(message, delivered):
        what = f"{wall - shown} ms before the server's clock had reached its instant, {wall}: {delivered.token}"
        found.broken("never early", message.id, f"came out {what}")


def _put_aside(message: MessageFacts, delivered: DeliveryFacts) -> bool:
    """Whether it may have been released until it is called: its instant was reached before, and is none any more."""
    return any(act.op == "release" and act.possible and act.began < delivered.ended for act in message.acts)


def _instant(facts: Facts, at: int | None, since: int, until: int, terms: Terms) -> int:
    """What the server's clock has to reach first. 0: nothing, as it may have shown that when the instant was given."""
    if at is None or not terms.can.instants:
        return 0
    shown = _shown(facts, since, min(until, facts.end))
    return 0 if shown is None or shown >= at else at


def _shown(facts: Facts, since: int, until: int) -> int | None:
    """The latest that the server's clock can have shown in this time, in ms; None when nobody knows."""
    if not facts.clocks or since < facts.clocks[0].ended:
        return None
    latest = 0
    for each, later in zip_longest(facts.clocks, facts.clocks[1:]):
        last = until if later is None else min(until, later.ended)
        if each.began <= last and since <= last:
            if each.now is None:
                return None
            span = last - each.began
            latest = max(latest, each.now + (span + slack(span)) // MS)
    return latest


def _in_a_pause(facts: Facts, delivered: DeliveryFacts, acts: Sequence[Act]) -> bool:
    """Whether the topic had been paused when the receive began, and nobody can have resumed it before it was over.

    A pause that a rollback of the server may have undone does not count.
    """
    past = [act for act in acts if act.op == "pause" and act.happened and act.ended < delivered.began]
    pauses = [act for act in past if not facts.forgotten(act)]
    if not pauses:
        return False
    last = max(act.began for act in pauses)
    return not any(act.op == "resume" and act.possible and act.ended >= last and act.began <= delivered.ended for act in acts)


def _may_hold(setter: Setter, delivered: DeliveryFacts, setters: list[Setter]) -> bool:
    """Whether the due time at this delivery may be the one that the setter gave."""
    if setter.began > delivered.ended or (setter.token is not None and setter.token >= delivered.token):
        return False
    if len(setters) == 1:
        return True
    return not any(
        (setter.ended < later.began or (setter.made and not later.made))
        and (later.ended < delivered.began or (later.token is not None and later.token < delivered.token))
        for later in setters
        if later.ended != NEVER and not later.undone
    )


def _setters(facts: Facts, message: MessageFacts, terms: Terms) -> Iterable[Setter]:
    for send in message.sends:
        made = send.key is None or send.outcome == "created"
        if send.if_exists == "merge" and not made:
            continue  # what is merged into a message changes nothing but its body
        real = 0 if send.delay is None or send.needs else send.began + send.delay * MS
        due = 0 if send.needs or facts.may_be_made_again(send) else send.due or 0  # its first making had another
        wall = min(due, _instant(facts, send.at, send.began, send.ended, terms))
        yield Setter(send.began, send.ended, due, real, wall, made, undone=facts.forgotten(send))
    for act in message.acts:
        sets = act.op in ("retry", "reschedule") or (act.op == "release" and act.delay)
        if sets and act.possible:
            yield _set_by(facts, act, message, terms, sure=True)
    for act in facts.requeues(message):
        yield _set_by(facts, act, message, terms, sure=False)
    for key in {send.key for send in message.sends if send.key}:
        for act in facts.by_key.get((message.topic, key), ()):
            if act.op == "reschedule" and act.possible:
                yield _set_by(facts, act, message, terms, sure=False)


def _set_by(facts: Facts, act: Act, message: MessageFacts, terms: Terms, *, sure: bool) -> Setter:
    """`sure`: if it happened, it happened to this message."""
    least = act.at if act.at is not None else _engine_time(message, act, terms) + (act.delay or 0)
    real = 0 if act.at is not None else act.began + (act.delay or 0) * MS
    wall = _instant(facts, act.at, act.began, act.ended, terms)
    token = act.token if terms.can.fencing else None
    return Setter(act.began, act.ended if sure else NEVER, least, real, wall, token=token, undone=facts.forgotten(act))


def _engine_time(message: MessageFacts, act: Act, terms: Terms) -> int:
    """What the engine's clock had reached when this was done, at least."""
    best = 0
    for send in message.sends:
        if send.ended < act.began and _tells_time(send):
            at = (send.due or 0) - (send.delay or 0) - terms.can.tick
            best = max(best, at + _gone_by(send.ended, act.began, terms))
    for each in message.deliveries:
        if each.token == act.token:
            best = max(best, each.now)
        if each.ended < act.began:
            best = max(best, each.now + _gone_by(each.ended, act.began, terms))
    return best


def _tells_time(send: Send) -> bool:
    """Whether its answer says what the engine's time was when it was accepted."""
    if send.operation is not None or send.tries > 1 or send.needs:
        return False
    return send.delay is not None and send.due is not None and send.outcome in ("created", "replaced")


def made(each: DeliveryFacts, terms: Terms) -> int:
    """The engine's time when it was handed out, at the earliest: a receive asks server after server, and tells the end."""
    return each.now - each.took if terms.spread else each.now


def _gone_by(since: int, until: int, terms: Terms) -> int:
    return (until - since - slack(until - since)) // MS if terms.steady else 0


def sharpen(facts: Facts, terms: Terms) -> None:
    """If no clock was set, the engine's times say when within its receive a message was handed out."""
    for message in facts.messages.values():
        for send in message.sends[:1]:
            if _tells_time(send):
                put = (send.due or 0) - (send.delay or 0)
                for each in message.deliveries:
                    span = (made(each, terms) - put - terms.can.tick) * MS
                    each.began = max(each.began, min(each.ended, send.began + span - slack(span)))
