"""Topics keep apart, and a pause holds."""

from collections.abc import Sequence

from bide.testing.history.facts import Act, Delivered, Facts
from bide.testing.history.report import Findings, Terms


def judge(facts: Facts, terms: Terms, found: Findings) -> None:
    for message in facts.messages.values():
        for each in message.deliveries:
            if each.foreign:
                found.broken("isolation", message.id, f"of {each.topic} came to a receiver that had not asked for that")
            if facts.topics and (acts := facts.topics.get(each.topic)) and _in_a_pause(each, acts):
                found.broken("pause", message.id, f"came out of {each.topic} while that was paused: {each.token}")


def _in_a_pause(delivered: Delivered, acts: Sequence[Act]) -> bool:
    """Whether the topic had been paused when the receive began, and nobody can have resumed it before it was over."""
    pauses = [act for act in acts if act.op == "pause" and act.happened and act.ended < delivered.began]
    if not pauses:
        return False
    last = max(act.began for act in pauses)
    return not any(act.op == "resume" and act.possible and act.ended >= last and act.began <= delivered.ended for act in acts)
