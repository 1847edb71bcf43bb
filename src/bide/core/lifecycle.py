"""The life of a message, as data: every step that exists. Engines differ in how, never in what."""

from typing import Literal, TypeAlias

Stage: TypeAlias = Literal["new", "scheduled", "ready", "leased", "dead", "done", "cancelled", "expired", "purged"]
Step: TypeAlias = Literal[
    "send", "due", "claim", "ack", "retry", "release", "bury", "lease ends", "cancel",
    "reschedule", "replace", "expire", "requeue", "purge", "drop", "move in", "clock set back",
]  # fmt: skip

LIFE: tuple[tuple[Stage, Step, Stage], ...] = (
    ("new", "send", "scheduled"),
    ("scheduled", "due", "ready"),
    ("ready", "clock set back", "scheduled"),
    ("ready", "claim", "leased"),
    ("leased", "ack", "done"),
    ("leased", "retry", "scheduled"),
    ("leased", "release", "scheduled"),
    ("leased", "lease ends", "ready"),
    ("leased", "bury", "dead"),
    ("leased", "expire", "expired"),
    ("scheduled", "cancel", "cancelled"),
    ("ready", "cancel", "cancelled"),
    ("scheduled", "reschedule", "scheduled"),
    ("ready", "reschedule", "scheduled"),
    ("scheduled", "replace", "scheduled"),
    ("ready", "replace", "scheduled"),
    ("scheduled", "purge", "purged"),
    ("ready", "purge", "purged"),
    ("dead", "purge", "purged"),
    ("ready", "expire", "expired"),
    ("scheduled", "expire", "expired"),
    ("dead", "requeue", "scheduled"),
    ("dead", "drop", "purged"),
    ("new", "move in", "dead"),
)
"""From, by, to. A message scheduled for now is due at once. "bury" is asked for, or follows the last attempt;
"expire" on a leased message happens when it would come back too late; "drop" is the end of a dead letter's keeping;
"move in" brings a dead letter of another queue; "clock set back" happens to an instant that the server's clock has not reached,
as it stands then, and which may expire before it does."""

ENDS: frozenset[Stage] = frozenset({"done", "cancelled", "expired", "purged"})

_NEXT = {(begin, step): end for begin, step, end in LIFE}


def follow(stage: Stage, step: Step) -> Stage:
    """Where a step leads. KeyError for a step that does not exist from there."""
    return _NEXT[stage, step]


def diagram() -> str:
    """The life of a message in Mermaid's language."""
    names = {"new": "[*]"} | {end: end for end in ENDS}
    lines = [f"    {names.get(begin, begin)} --> {end}: {step}" for begin, step, end in LIFE]
    return "\n".join(["stateDiagram-v2", *lines, *(f"    {end} --> [*]" for end in sorted(ENDS))])
