"""Deliveries of one message, one after the other: one live lease, rising tokens, counted attempts, explained repeats."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TypeAlias

from bide.core.formats import plural
from bide.prove.facts import LOST_CLAIMS, ROLLBACK, Act, DeliveryFacts, Facts, MessageFacts
from bide.prove.report import Findings, Terms
from bide.prove.rules.times import MS, made, slack

ENDINGS = ("ack", "retry", "release", "bury")
ANY = 2**31  # number of deliveries

Acts: TypeAlias = Mapping[str, Sequence[Act]]
"""What was done with each token of a message."""


def judge(facts: Facts, terms: Terms, found: Findings) -> None:
    gaps = 0
    for message in facts.messages.values():
        if not message.deliveries:
            continue
        if terms.can.fencing:
            message.deliveries.sort(key=lambda each: (each.token, each.now, each.ended))
        else:
            message.deliveries.sort(key=lambda each: (each.now, each.ended))
        acts = _by_token(message.acts)
        if len(message.deliveries) > 1:
            _repeats(facts, message, acts, terms, found)
        if terms.can.attempts:
            gaps += _attempts(facts, message, acts, found)
        if terms.can.fencing:
            _tokens(message, terms, found)
            _stale(facts, message, acts, found)
    room = sum(ANY if each.room is None else each.room for each in facts.unseen)
    if gaps > room:
        found.broken("attempts", None, f"{plural(gaps, 'attempt')} in no record, and at most {room} can have gone unseen")


def _by_token(acts: Iterable[Act]) -> Acts:
    found: dict[str, list[Act]] = {}
    for act in acts:
        if act.token is not None:
            found.setdefault(act.token, []).append(act)
    return found


def _repeats(facts: Facts, message: MessageFacts, acts: Acts, terms: Terms, found: Findings) -> None:
    for first, second in pairwise(message.deliveries):
        mine = acts.get(first.token, ())
        until = _lease_end(mine, first, second, terms)
        cause = _cause(facts, message, mine, first, second)
        if cause is None and second.now >= until:
            cause = "lease"
        if cause is None and facts.rolled_back(first.began, second.ended, LOST_CLAIMS):
            cause = ROLLBACK
        found.causes[cause or "unexplained"] += 1
        if cause is None:
            what = f"handed out with the token {second.token} at {second.now}; {first.token} was held until {until} at least"
            found.broken("duplicates explained", message.id, what)
            if not any(act.op in ENDINGS and act.possible for act in mine):
                found.broken("one live lease", message.id, what)


def _cause(facts: Facts, message: MessageFacts, mine: Sequence[Act], first: DeliveryFacts, second: DeliveryFacts) -> str | None:
    """Why the message came back, if an operation explains it."""
    for act in mine:
        if act.op in ("retry", "release") and act.possible and act.began < second.ended:
            return act.op
    if _requeued(facts, message, first, second) and _may_be_dead(facts, message, mine, first, second):
        return "requeue"
    return None


def _lease_end(mine: Sequence[Act], first: DeliveryFacts, second: DeliveryFacts, terms: Terms) -> int:
    """The engine's time until which the first delivery was held, at least, if nothing ended it."""
    since = made(first, terms)
    until = since + first.lease
    for act in sorted((act for act in mine if act.op == "extend" and act.possible), key=lambda act: act.began):
        span = act.began - first.ended
        gone_by = max(0, span - slack(span)) // MS if terms.steady else 0
        later = since + gone_by + (act.lease or 0)
        until = later if act.ended < second.began else min(until, later)
    return until


def _requeued(facts: Facts, message: MessageFacts, first: DeliveryFacts, second: DeliveryFacts) -> bool:
    return any(first.began < act.ended and act.began < second.ended for act in facts.requeues(message))


def _may_be_dead(facts: Facts, message: MessageFacts, mine: Sequence[Act], first: DeliveryFacts, second: DeliveryFacts) -> bool:
    buried = any(act.op == "bury" and act.possible for act in mine)
    return buried or first.attempt + _unseen(facts, message.topic, first.began, second) >= first.max_attempts


def _unseen(facts: Facts, topic: str, since: int, delivered: DeliveryFacts) -> int:
    """How many deliveries of one message may be in no record."""
    found = 0
    for receive in facts.unseen:
        if topic in receive.topics and receive.began < delivered.ended and receive.ended > since:
            found += 1 if receive.room is not None else ANY
    return found


def _attempts(facts: Facts, message: MessageFacts, acts: Acts, found: Findings) -> int:
    """Judges the attempt numbers. Returns how many deliveries must be in no record."""
    gaps = 0
    last: DeliveryFacts | None = None
    for each in message.deliveries:
        if each.attempt > each.max_attempts:
            found.broken("attempts", message.id, f"attempt {each.attempt} of {each.max_attempts}, with the token {each.token}")
        allowed = {1} if last is None else _next_attempts(facts, message, acts.get(last.token, ()), last, each)
        if each.attempt not in allowed:
            missing = min((each.attempt - start for start in allowed if start < each.attempt), default=0)
            if 0 < missing <= _unseen(facts, each.topic, 0 if last is None else last.began, each):
                gaps += missing
            else:
                where = "at first" if last is None else f"after attempt {last.attempt}"
                found.broken("attempts", message.id, f"attempt {each.attempt} {where}, with the token {each.token}")
        last = each
    return gaps


def _next_attempts(
    facts: Facts, message: MessageFacts, mine: Sequence[Act], last: DeliveryFacts, each: DeliveryFacts
) -> set[int]:
    """What the next delivery may count; more if some went unseen."""
    if each.tag != last.tag:
        return {1}  # a replacing send came in between
    released = [act for act in mine if act.op == "release" and act.possible]
    counts = {last.attempt + 1}
    if released:
        counts = {last.attempt} if any(act.happened for act in released) else {last.attempt, last.attempt + 1}
    sent = next((send for send in message.sends if send.tag == each.tag), None)
    replaced_itself = sent is not None and sent.tries > 1 and sent.if_exists in ("replace", "later")
    if facts.rolled_back(last.began, each.ended, LOST_CLAIMS):
        counts.update(range(1, last.attempt + 1))  # the deliveries that it forgot are counted again
    if replaced_itself or (_requeued(facts, message, last, each) and _may_be_dead(facts, message, mine, last, each)):
        counts.add(1)
    return counts


def _tokens(message: MessageFacts, terms: Terms, found: Findings) -> None:
    """In the order of the tokens, no delivery is over before an earlier one began, nor older by the engine's clock."""
    began = now = 0
    token = ""
    for each in message.deliveries:
        if each.token == token:
            found.broken("fencing", message.id, f"the token {token} was given twice")
        elif each.ended < began or each.now < now:
            found.broken("fencing", message.id, f"the token {each.token} is above one that was given later")
        began, now, token = max(began, each.began), max(now, made(each, terms)), each.token


def _stale(facts: Facts, message: MessageFacts, acts: Acts, found: Findings) -> None:
    """An old token was accepted after a later one had been given, or one token ended two deliveries."""
    if not acts:
        return
    tokens = [each.token for each in message.deliveries]
    soonest = list(accumulate((each.ended for each in reversed(message.deliveries)), min))[::-1]
    for token, mine in acts.items():
        found.counts["refused"] += sum(act.outcome == "LeaseLost" for act in mine)
        accepted = [act for act in mine if act.happened]
        later = bisect_right(tokens, token)
        for act in accepted:
            forgotten = later < len(soonest) and facts.rolled_back(soonest[later], act.began, LOST_CLAIMS)
            if later < len(soonest) and soonest[later] < act.began and not forgotten:
                found.broken("fencing", message.id, f"{act.op} with the old token {token} was accepted")
        ends = [act.op for act in accepted if act.op in ENDINGS and not facts.forgotten(act)]
        if len(ends) > 1:
            found.broken("fencing", message.id, f"{' and '.join(ends)} were accepted with one token, {token}")
