"""What is found of policies: an operator may set for our queues what changes when messages come, or loses them."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from bide.engines.base import Finding
from bide.engines.rabbitmq.doctor.broker import not_told
from bide.engines.rabbitmq.doctor.seen import Seen
from bide.engines.rabbitmq.ladder import STEPS

_LENGTH = "no more than this is kept, and "
_DELETED = "the broker deletes them, with their messages, when nobody has received from them for so long"
_SENTENCES: Mapping[tuple[str, str], str] = {
    ("wait", "overflow"): "this switches at-least-once dead-lettering off, and the broker does not say so: messages get lost",
    ("wait", "message-ttl"): "messages leave them too early, and have to pass the ladder again and again",
    ("wait", "max-length"): _LENGTH + "what comes then is refused, or holds up what should go there",
    ("wait", "max-length-bytes"): _LENGTH + "what comes then is refused, or holds up what should go there",
    ("wait", "expires"): _DELETED,
    ("topic", "message-ttl"): "due messages that nobody receives for so long are taken away, to the lost ones",
    ("topic", "max-length"): _LENGTH + "due messages are lost or refused then",
    ("topic", "max-length-bytes"): _LENGTH + "due messages are lost or refused then",
    ("topic", "expires"): _DELETED,
    ("topic", "delivery-limit"): "messages are taken away after so many deliveries, while bide counts attempts by itself",
    ("dead", "message-ttl"): "dead letters are deleted after so long, whatever dead_for says",
    ("dead", "max-length"): _LENGTH + "older dead letters are deleted, whatever dead_max says",
    ("dead", "max-length-bytes"): _LENGTH + "older dead letters are deleted",
    ("dead", "expires"): _DELETED,
    ("dead", "delivery-limit"): "dead letters that were looked at so often are deleted",
    ("lost", "message-ttl"): "messages that led nowhere are deleted before bide can bring them back",
    ("lost", "max-length"): _LENGTH + "messages that led nowhere are lost",
    ("lost", "max-length-bytes"): _LENGTH + "messages that led nowhere are lost",
    ("lost", "expires"): _DELETED,
    ("lost", "delivery-limit"): "messages that led nowhere are deleted before bide can bring them back",
    ("parked", "overflow"): "this switches at-least-once dead-lettering off: messages whose handlers take very long get lost",
    ("parked", "max-length"): _LENGTH + "handlers that take very long lose their messages to others meanwhile",
    ("parked", "max-length-bytes"): _LENGTH + "handlers that take very long lose their messages to others meanwhile",
    ("index", "max-length-bytes"): "the broker forgets names of topics, and bide lists them no more",
    ("index", "max-age"): "the broker forgets names of topics, and bide lists them no more",
}


class _Told(NamedTuple):
    policy: str
    kind: str
    key: str
    value: str


def policies(seen: Seen) -> Iterator[Finding]:
    queues = seen.told.queues
    if queues is None:
        asked = not_told(seen, "queues", f"{seen.address.ctl('list_policies')}, and with list_operator_policies")
        yield Finding("policies", f"{asked}. None may set ttl, length, overflow, expires or delivery-limit for our queues")
        return
    found = defaultdict[_Told, list[str]](list)
    for name, queue in queues.items():
        for told in _harmful(seen, name, queue):
            found[told].append(name)
    for told, names in found.items():
        several = f"{len(names)} queues, such as {names[0]}" if len(names) > 1 else names[0]
        advice = f"{_SENTENCES[told.kind, told.key]}. Change the policy's pattern so that it leaves out our queues"
        yield Finding(f"policy {told.policy}", f"sets {told.key} to {told.value} for {several}", "bad", advice)
    if not found:
        yield Finding("policies", "none that changes what our queues do")


def _harmful(seen: Seen, name: str, queue: Mapping[str, Any]) -> Iterator[_Told]:
    kind = name.removeprefix(seen.names.prefix).partition(":")[0]
    named = [str(queue[field]) for field in ("policy", "operator_policy") if queue.get(field)]
    for key, value in (queue.get("effective_policy_definition") or {}).items():
        if (kind, key) in _SENTENCES and not _harmless(seen, name, key, value):
            yield _Told(" and ".join(named), kind, key, str(value))


def _harmless(seen: Seen, name: str, key: str, value: object) -> bool:
    """Of two times, the queue's and the policy's, the shorter one counts. Of two kinds of overflow, the policy's does."""
    if key == "overflow":
        return value == "reject-publish"
    if key == "message-ttl" and isinstance(value, int):
        own = next((step.ms for step in STEPS if seen.names.wait(step) == name), None)
        return own is not None and value >= own
    return False
