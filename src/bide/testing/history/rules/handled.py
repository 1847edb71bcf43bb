"""A worker acks what its handler has done, and nothing else; each delivery goes to one handler, once."""

from bide.testing.history.facts import Act, Facts, Message
from bide.testing.history.report import Findings, Terms


def judge(facts: Facts, terms: Terms, found: Findings) -> None:
    if not facts.workers or not terms.can.fencing:  # without tokens nobody knows which delivery a handler was for
        return
    for message in facts.messages.values():
        _handed_on(message, found)
        tokens = {each.token for each in message.deliveries if each.process in facts.workers}
        for act in message.acts:
            if act.op == "ack" and act.token in tokens:
                _acked(message, act, found)


def _handed_on(message: Message, found: Findings) -> None:
    seen: set[str] = set()
    known = {each.token for each in message.deliveries}
    for handled in message.handled:
        if handled.token in seen:
            found.broken("handled", message.id, f"two handlers were called for the token {handled.token}")
        if handled.token not in known:
            found.broken("handled", message.id, f"a handler was called with {handled.token}, which nobody was handed")
        seen.add(handled.token)


def _acked(message: Message, ack: Act, found: Findings) -> None:
    """By its handler, or when that had ended well. What counts is that it was tried: the engine does not know better."""
    mine = [each for each in message.handled if each.token == ack.token and each.began < ack.began]
    if not mine:
        found.broken("handled", message.id, f"acked with the token {ack.token} before any handler was called for that")
    elif all(each.result == "fail" and each.ended < ack.began for each in mine):
        found.broken("handled", message.id, f"acked with the token {ack.token} though its handler had failed")
