"""Ends are final: each message has one, nothing happens after it, and answers tell the truth. Workers ack finished work only.

The order of deliveries and ends in the records counts, not when a handler was called: it may still be at work on an older
delivery. An end that a rollback of the server may have undone does not count.
"""

from bide.prove.facts import Act, DeliveryFacts, Facts, MessageFacts, before
from bide.prove.report import Findings, Terms


def judge(facts: Facts, terms: Terms, found: Findings) -> None:
    for message in facts.messages.values():
        if not message.acts:
            continue
        ends = [act for act in message.acts if act.happened and _ends(act, message, terms)]
        found.counts["dead"] += any(act.op not in ("ack", "cancel") for act in ends)
        undone = [end for end in ends if facts.forgotten(end)]
        ends = [end for end in ends if end not in undone]
        if any(facts.requeues(message)):  # what was dead may live again
            ends, undone = ([act for act in acts if act.op in ("ack", "cancel")] for acts in (ends, undone))
        else:
            _said_over(facts, message, found)
        found.counts["undone"] += sum(any(_later(each, end, terms) for each in message.deliveries) for end in undone)
        if len(ends) > 1:
            found.broken("final", message.id, f"has ended {len(ends)} times: {', '.join(act.op for act in ends)}")
        for end in ends:
            _after_the_end(facts, message, end, terms, found)
    if facts.workers and terms.can.fencing:  # without tokens nobody knows which delivery a handler was for
        for message in facts.messages.values():
            _handlers(message, found)
            _acks(facts, message, found)


def _ends(act: Act, message: MessageFacts, terms: Terms) -> bool:
    return act.op in ("ack", "cancel", "bury") or (act.op == "retry" and terms.can.attempts and _was_last(act, message))


def _was_last(retry: Act, message: MessageFacts) -> bool:
    return any(each.token == retry.token and each.attempt >= each.max_attempts for each in message.deliveries)


def _after_the_end(facts: Facts, message: MessageFacts, end: Act, terms: Terms, found: Findings) -> None:
    for each in message.deliveries:
        if _later(each, end, terms):
            found.broken("final", message.id, f"came out after {end.op} was accepted, with the token {each.token}")
    for act in message.acts:
        if act.happened and act.op not in ("requeue", "result") and before(end, act):
            found.broken("final", message.id, f"{act.op} was accepted after {end.op} was")
    left = message.left
    if left is not None and facts.look is not None and before(end, facts.look):
        is_that_end = left.state == "dead" and end.op in ("bury", "retry")
        if not is_that_end:
            found.broken("final", message.id, f"is {left.state} in the end, though {end.op} was accepted")


def _later(delivered: DeliveryFacts, end: Act, terms: Terms) -> bool:
    """Whether a message was handed out after its end: the token that ended it must have been the last one."""
    if terms.can.fencing and end.token is not None:
        return delivered.token > end.token and delivered.ended > end.began
    return before(end, delivered)


def _said_over(facts: Facts, message: MessageFacts, found: Findings) -> None:
    """A cancel or reschedule was answered that the message is gone or dead, and then it was delivered."""
    for act in message.acts:
        if act.outcome in ("gone", "dead") and act.result == "fail" and not facts.forgotten(act):
            sent = any(before(send, act) for send in message.sends)
            later = any(before(act, each) for each in message.deliveries)
            if sent and later:
                found.broken("final", message.id, f"{act.op} said that it was {act.outcome}, and then it came out")


def _handlers(message: MessageFacts, found: Findings) -> None:
    """Each delivery goes to one handler, once."""
    seen: set[str] = set()
    known = {each.token for each in message.deliveries}
    for handled in message.handled:
        if handled.token in seen:
            found.broken("handled", message.id, f"two handlers were called for the token {handled.token}")
        if handled.token not in known:
            found.broken("handled", message.id, f"a handler was called with {handled.token}, which was never handed out")
        seen.add(handled.token)


def _acks(facts: Facts, message: MessageFacts, found: Findings) -> None:
    """A worker acks what its handler has done. An ack that was only tried counts too: the engine does not know better.

    What a schedule has planned may be left out, which is an ack without a handler.
    """
    tokens = {each.token for each in message.deliveries if each.process in facts.workers and each.planned is None}
    for ack in message.acts:
        if ack.op == "ack" and ack.token in tokens:
            mine = [each for each in message.handled if each.token == ack.token and each.began < ack.began]
            if not mine:
                found.broken("handled", message.id, f"acked with the token {ack.token} before any handler was called for it")
            elif all(each.result == "fail" and each.ended < ack.began for each in mine):
                found.broken("handled", message.id, f"acked with the token {ack.token} though its handler had failed")
