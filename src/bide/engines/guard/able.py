"""Which engines can do what others can't: for the sentence that tells somebody who is refused where to go."""

from collections.abc import Mapping, Sequence

ALL: Sequence[str] = ("sqlite", "redis", "postgres", "memory")
ABLE: Mapping[str, Sequence[str]] = {
    "cancel": ALL,
    "lookup": ALL,
    "keys": ALL,
    "idempotent": ALL,
    "extend": (*ALL, "amqp"),
    "inspect": ALL,
    "dead": (*ALL, "amqp"),
    "pause": ALL,
    "priority": ALL,
    "gates": ALL,
    "results": ALL,
    "past": ALL,
    "transactional": ("sqlite", "postgres"),
}
"""Each capability that a call may be refused for, and the schemes of those that have it; the registry's names of them."""


def others_can(*needs: str) -> str:
    """A sentence: the engines that have all of these capabilities."""
    names = [f"{name}://" for name in ABLE[needs[0]] if all(name in ABLE[each] for each in needs)]
    *first, last = names
    return f"These engines can: {', '.join(first)} and {last}." if first else f"This engine can: {last}."
