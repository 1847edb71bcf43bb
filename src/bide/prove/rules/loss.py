"""No loss: every accepted message has ended, or may have ended, or is still there."""

from collections import Counter

from bide.clock import MS
from bide.core.formats import plural
from bide.engines.base import OPERATION_MS
from bide.prove.facts import LOST_CLAIMS, Act, Facts, LastLook, MessageFacts
from bide.prove.report import Findings, Terms

MANY = 2**31
SPARE = 5_000  # ms that the engine's clock may be ahead of what was last heard of it
TOO_OLD = OPERATION_MS * MS  # ns after which an engine refuses a command that is still on its way


def judge(facts: Facts, terms: Terms, found: Findings) -> None:
    look = facts.look
    missing = [each for each in facts.messages.values() if _is_missing(facts, each) and not _may_be_forgotten(facts, each)]
    if look is None:
        if missing:
            found.doubts.append(f"{plural(len(missing), 'message')} came to no end, and nobody has looked at what is left.")
        return
    last = max((each.now for message in facts.messages.values() for each in message.deliveries), default=0)
    missing = [each for each in missing if not _may_have_expired(each, last) and _sent_before(each, look)]
    for message in Allowance(facts).leaves(missing):
        found.broken("no loss", message.id, "was accepted, has had no end, and is not there any more")
    left = (message for message in facts.messages.values() if message.left is not None and message.left.state == "dead")
    found.counts["dead"] += sum(not any(message.done("bury", "retry")) for message in left)
    _look(facts, look, found)


def _is_missing(facts: Facts, message: MessageFacts) -> bool:
    if message.left is not None or any(message.done("ack", "cancel")) or _may_have_ended(facts, message):
        return False
    return bool(message.deliveries) or message.accepted


def _may_be_forgotten(facts: Facts, message: MessageFacts) -> bool:
    """With a server that went back to before it was sent, or that has lost what no replica had confirmed.

    A claim is not confirmed: a message that was delivered need not be on a replica.
    """
    return bool(message.sends) and all(
        facts.forgotten(send) or (send.result == "unknown" and facts.may_be_made_again(send)) for send in message.sends
    )


def _may_have_ended(facts: Facts, message: MessageFacts) -> bool:
    """By something of which nobody knows whether it happened."""
    return any(
        act.result == "unknown" and (act.op == "cancel" or (act.op == "ack" and _may_be_held(facts, message, act)))
        for act in message.acts
    )


def _may_be_held(facts: Facts, message: MessageFacts, act: Act) -> bool:
    """Whether no claim came after that of its token, or a server may have forgotten those that did.

    It has not forgotten a claim whose holder has ended it since: that end was confirmed, and with it the claim.
    """
    later = [each for each in message.deliveries if each.token > (act.token or "")]
    ends = (each for each in message.done("retry", "release", "bury") if (each.token or "") > (act.token or ""))
    until = min(act.ended, act.began + TOO_OLD)
    return all(facts.rolled_back(each.ended, until, LOST_CLAIMS) for each in later) and all(map(facts.forgotten, ends))


def _may_have_expired(message: MessageFacts, last: int) -> bool:
    ends = [(send.due or 0) + send.expires_in for send in message.sends if send.expires_in is not None]
    return bool(ends) and min(ends) <= last + SPARE


def _sent_before(message: MessageFacts, look: LastLook) -> bool:
    return not message.sends or any(send.began < look.began for send in message.sends)


class Allowance:
    """Other ways out of the queue, of which only the number of messages is known, not which ones."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._dead = Counter[str]()
        self._pending = Counter[str]()
        self._keyed = Counter[tuple[str, str]]()
        for topic in facts.topics:
            for act in facts.of_topic(topic, "purge"):
                room = 0 if not act.possible else act.count if act.happened else MANY
                (self._dead if act.state == "dead" else self._pending)[topic] += room
        for topic, counts in ((facts.look and facts.look.counts) or {}).items():
            self._dead[topic] += counts.get("dropped", 0)
        for name, acts in facts.by_key.items():
            self._keyed[name] = sum(act.op == "cancel" and act.possible for act in acts)

    def leaves(self, missing: list[MessageFacts]) -> list[MessageFacts]:
        """The messages that nothing can have taken. Those with several possible causes come last."""
        return [message for message in sorted(missing, key=self._has_choice) if not self._takes(message)]

    def _has_choice(self, message: MessageFacts) -> bool:
        return self._may_be_dead(message) and bool(_names(message))

    def _takes(self, message: MessageFacts) -> bool:
        for name in _names(message):
            if self._keyed[name] > 0:
                self._keyed[name] -= 1
                return True
        for room, may in ((self._dead, self._may_be_dead(message)), (self._pending, True)):
            if may and room[message.topic] > 0:
                room[message.topic] -= 1
                return True
        return False

    def _may_be_dead(self, message: MessageFacts) -> bool:
        spent = any(each.attempt >= each.max_attempts for each in message.deliveries)
        return bool(self._facts.unseen) or spent or any(act.op == "bury" and act.possible for act in message.acts)


def _names(message: MessageFacts) -> list[tuple[str, str]]:
    """The topics and keys by which it may have been cancelled. What a schedule has planned was sent by nobody."""
    keys = {send.key for send in message.sends} | {each.key for each in message.deliveries}
    return sorted((message.topic, key) for key in keys if key is not None)


def _look(facts: Facts, look: LastLook, found: Findings) -> None:
    """What is left is paused, planned or dead, and the counts say the same."""
    counts = look.counts
    seen: dict[str, Counter[str]] = {topic: Counter() for topic in counts or ()}
    for message in facts.messages.values():
        left = message.left
        if left is None:
            continue
        state = "pending" if left.state in ("scheduled", "ready") else left.state
        seen.setdefault(left.topic, Counter())[state] += 1
        if look.drained and left.state in ("ready", "leased") and not _paused(facts, look, left.topic):
            found.broken("no loss", message.id, f"is {left.state} after all was drained, in a topic that is not paused")
    for topic, there in seen.items() if counts is not None else ():
        told = (counts or {}).get(topic, {})
        said = {"pending": told.get("scheduled", 0) + told.get("ready", 0)}
        said |= {state: told.get(state, 0) for state in ("leased", "dead")}
        for state, count in said.items():
            if count != there[state]:
                found.broken("counts agree", None, f"{topic} was said to hold {count} {state}, and {there[state]} were there")


def _paused(facts: Facts, look: LastLook, topic: str) -> bool:
    if look.counts is not None:
        return bool(look.counts.get(topic, {}).get("paused"))
    return any(act.possible for act in facts.of_topic(topic, "pause"))
