"""Finds out which message each operation was about: by the answer, by the tag of a delivery, by the key."""

from collections.abc import Sequence

import msgspec

from bide.engines.base import OPERATION_MS
from bide.prove.facts import Act, Delivered, Facts, Message, Send

FORGOTTEN = OPERATION_MS * 1_000_000  # ns after which an operation may act again


def join_operations(facts: Facts) -> None:
    """Of several sends with one operation the first acts; it is known which when it was over before the others began."""
    named: dict[tuple[str, str | None, str], list[Send]] = {}
    for send in facts.sends.values():
        if send.operation is not None and send.result != "fail":
            named.setdefault((send.topic, send.key, send.operation), []).append(send)
    for group in named.values():
        group.sort(key=lambda send: send.began)
        first = group[0]
        for again in group[1:]:
            if again.began - first.began >= FORGOTTEN:
                first = again
                continue
            if again.id is not None and first.id not in (None, again.id):
                facts.split.append((first, again.id))
            again.repeated = first.result == "ok" and first.ended < again.began


def join_messages(facts: Facts) -> None:
    """Give each message its sends, and what was done to it by key."""
    for send in facts.sends.values():
        if send.id is not None and send.stored:
            facts.message(send.id).sends.append(send)
        if send.key is not None and send.result != "fail":
            facts.keyed.setdefault((send.topic, send.key), []).append(send)
    for message in facts.messages.values():
        if any(each.again for each in message.deliveries):
            message.deliveries = _once(message.deliveries)
        for delivered in message.deliveries:
            _recover(facts, message, delivered.tag, delivered.ended)
        if message.left is not None and facts.look is not None:
            _recover(facts, message, message.left.tag, facts.look.began)
    for name, acts in facts.by_key.items():
        _join_key(facts, facts.keyed.get(name, ()), acts)


def _once(deliveries: Sequence[Delivered]) -> list[Delivered]:
    """Drop a delivery that was asked for again, unless the process that got it first has no record of it."""
    tokens = {each.token for each in deliveries if not each.again}
    unwritten = {each.token: each for each in deliveries if each.again and each.token not in tokens}
    return [*(each for each in deliveries if not each.again), *unwritten.values()]


def _recover(facts: Facts, message: Message, tag: str | None, seen: int) -> None:
    """The tag of a message that was delivered or left says which send made it."""
    send = facts.sends.get(tag or "")
    if send is None or not send.stored:
        return
    mine = next((each for each in message.sends if each.tag == tag), None)
    if mine is None and send.id is None:
        send.id, mine = message.id, send
        facts.recovered += 1
        message.sends.append(send)
    elif mine is None:
        facts.split.append((send, message.id))
        mine = msgspec.structs.replace(send, id=message.id, due=None, result="unknown", ended=seen)
        message.sends.append(mine)
    if mine.result == "unknown":
        mine.ended = min(mine.ended, seen)


def _join_key(facts: Facts, sends: Sequence[Send], acts: list[Act]) -> None:
    """What was done by key was done to the message that had it, where only one can have had it."""
    ids = {send.id for send in sends}
    if len(ids) == 1 and None not in ids:
        facts.message(next(iter(ids)) or "").acts.extend(acts)
        acts.clear()
