"""What came out is what was sent, once: bodies, operations, keys and batches."""

from collections.abc import Iterable, Sequence
from itertools import accumulate

from bide.engines.base import MAX_BATCH
from bide.prove.facts import DeliveryFacts, Facts, LeftMessage, MessageFacts, Send, before
from bide.prove.history import FORGOTTEN
from bide.prove.report import Findings, Terms


def judge(facts: Facts, terms: Terms, found: Findings) -> None:
    _once(facts, found)
    for message in facts.messages.values():
        for each in message.deliveries:
            _content(facts, message, each, found)
            if len(message.sends) > 1:
                _latest(facts, message, each, found)
        if message.left is not None:
            _content(facts, message, message.left, found)
    if terms.can.keys:
        for (topic, key), sends in facts.keyed.items():
            if len(sends) > 1:
                _one_a_key(facts, topic, key, sends, found)
    if terms.batches:
        _whole(facts, found)


def _once(facts: Facts, found: Findings) -> None:
    """One send has one id, if it named an operation that no rollback undid; otherwise no more than it had tries."""
    others: dict[str, set[str]] = {}
    for send, other in facts.split:
        others.setdefault(send.tag, set()).add(other)
    for tag, ids in others.items():
        send = facts.sends[tag]
        if send.id is not None:
            ids.add(send.id)
        made = f"made {len(ids)} messages: {', '.join(sorted(ids))}"
        remembered = send.last - send.began < FORGOTTEN and not facts.may_be_made_again(send)
        if send.operation is not None and remembered:
            found.broken("idempotent", send.id, f"the operation {send.operation} has {made}")
        elif len(ids) > send.tries and not facts.may_be_made_again(send):
            found.broken("idempotent", send.id, f"sent {send.tries} times, it has {made}")


def _content(facts: Facts, message: MessageFacts, seen: DeliveryFacts | LeftMessage, found: Findings) -> None:
    send = facts.sends.get(seen.tag or "")
    where = "is left" if isinstance(seen, LeftMessage) else f"came out with the token {seen.token}"
    if send is None and seen.planned is not None:
        return None
    if send is None:
        return found.broken("nothing unexpected", message.id, f"{where}, but nobody has sent it")
    if not send.stored:
        why = "its operation had acted before" if send.repeated else f"its send was answered with {send.outcome}"
        return found.broken("nothing unexpected", message.id, f"{where}, but {why}")
    if seen.topic != send.topic:
        found.broken("isolation", message.id, f"{where}, in the topic {seen.topic}, but was sent to {send.topic}")
    for what, got, wanted in (("body", seen.body, send.body), ("headers", seen.headers, send.headers)):
        if got != wanted and not (what == "body" and send.if_exists == "merge"):
            found.broken("nothing unexpected", message.id, f"{where}, with another {what} than was sent")
    if seen.key != send.key and (seen.key is not None or not _may_have_lost_key(facts, message, send)):
        found.broken("nothing unexpected", message.id, f"{where}, with the key {seen.key} in place of {send.key}")
    if isinstance(seen, DeliveryFacts) and seen.max_attempts != send.max_attempts:
        found.broken("nothing unexpected", message.id, f"{where}, with another limit of attempts than was sent")
    return None


def _may_have_lost_key(facts: Facts, message: MessageFacts, send: Send) -> bool:
    """To another message that was, or may have been, sent under it, or that came out with it, as a failover may undo what was
    answered; or as a dead letter of a shard that is given up.
    """
    successor = any(each.id != message.id for each in facts.keyed.get((send.topic, send.key or ""), ()))
    others = (each for other in facts.messages.values() if other.id != message.id for each in other.deliveries)
    return (
        successor
        or any((each.topic, each.key) == (send.topic, send.key) for each in others)
        or any(facts.resharded(act.ended) for act in facts.requeues(message))
    )


def _latest(facts: Facts, message: MessageFacts, delivered: DeliveryFacts, found: Findings) -> None:
    """A body that was replaced does not come out any more."""
    mine = next((send for send in message.sends if send.tag == delivered.tag), None)
    if mine is None:
        return
    for send in message.sends:
        news = send.outcome in ("replaced", "postponed") and (send.operation is None or send.operation != mine.operation)
        if news and before(mine, send) and before(send, delivered) and not facts.forgotten(send):
            found.broken("nothing unexpected", message.id, f"the old body came out, with the token {delivered.token}")
            return


def _one_a_key(facts: Facts, topic: str, key: str, sends: Sequence[Send], found: Findings) -> None:
    """Two messages that were both made under one key: the first must have ended, or run, when the second was made."""
    made = [send for send in sends if send.outcome == "created" and not send.repeated and not facts.forgotten(send)]
    made.sort(key=lambda send: send.began)
    if len({send.id for send in made}) < 2:
        return
    soonest = list(accumulate((send.ended for send in reversed(made)), min))[::-1]
    index = 0
    for first in sorted(made, key=lambda send: send.ended):
        while index < len(made) and made[index].began <= first.ended:
            index += 1
        if index == len(made):
            return
        message = facts.messages[first.id or ""]
        if (
            not any(facts.requeues(message))
            and not _revived(facts, message)
            and soonest[index] < _had_key_until(facts, message, key)
        ):
            found.broken("idempotent", first.id, f"held the key {key} of {topic} when another message was made under it")


def _revived(facts: Facts, message: MessageFacts) -> bool:
    """Whether it may have ended, and live again since the server went back."""
    return any(facts.forgotten(act) for act in message.acts)


def _had_key_until(facts: Facts, message: MessageFacts, key: str) -> int:
    """Until when it was pending, or living under its key, for sure."""
    until = max((each.began for each in message.deliveries if each.key == key), default=0)
    if message.deliveries:
        first = min(message.deliveries, key=lambda each: each.token)
        if first.attempt == 1 and not facts.unseen:
            until = max(until, first.began)
    left = message.left
    if left is not None and facts.look is not None and left.state != "dead":
        pending = left.attempt == 0 and left.state != "leased" and not facts.unseen
        if left.key == key or pending:
            until = max(until, facts.look.began)
    return until


def _whole(facts: Facts, found: Findings) -> None:
    """Of a part of a batch whose answer never came all messages came out, or none."""
    if facts.look is None or not facts.look.drained:
        return
    batches: dict[str, list[Send]] = {}
    for send in facts.sends.values():
        if send.batch is not None:
            batches.setdefault(send.batch, []).append(send)
    for batch in batches.values():
        for part in _parts(batch):
            there = sum(send.id is not None for send in part)
            purged = any(act.possible for act in facts.of_topic(part[0].topic, "purge"))
            if all(send.result == "unknown" for send in part) and 0 < there < len(part) and not purged:
                found.broken("batches", None, f"{there} of {len(part)} sent to {part[0].topic} in one part came out")


def _parts(batch: Sequence[Send]) -> Iterable[Sequence[Send]]:
    return (batch[first : first + MAX_BATCH] for first in range(0, len(batch), MAX_BATCH))
