"""What is found of the queues of a namespace: whether all are there, with enough replicas, and what policies make of them."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from bide.engines.base import Finding
from bide.engines.findings import judged
from bide.engines.rabbitmq.doctor.broker import not_told
from bide.engines.rabbitmq.doctor.look import Counts
from bide.engines.rabbitmq.doctor.seen import BrokerSeen
from bide.engines.rabbitmq.ladder import STEPS
from bide.errors import BideError

FEW = 5  # names that are written out
AGAIN = "run `bide doctor --fix`, which makes what is missing"
ENOUGH = 3  # replicas
UNEVEN = 2.0  # times as many leaders as an even share
_LENGTH = "no more than this is kept, and "
_DELETED = "the broker deletes them, with their messages, when nobody has received from them for so long"


def layout(seen: BrokerSeen) -> Iterator[Finding]:
    if seen.unused:
        yield Finding("layout", "nothing is there yet: it is made on first use")
        return
    missing = [name for name, there in seen.exchanges.items() if not there]
    missing += [name for name, found in seen.queues.items() if found is None]
    count = len(seen.exchanges) + len(seen.queues)
    if missing:
        advice = f"messages go astray, or are refused: {AGAIN}"
        yield Finding("layout", f"{len(missing)} of {count} are missing: {_few(missing)}", "bad", advice)
    elif not seen.made:
        yield Finding("layout", f"{seen.names.made} is missing, so it is not known to be whole", "warn", AGAIN)
    else:
        yield Finding("layout", f"all {count} exchanges and queues are there")


def bindings(seen: BrokerSeen) -> Iterator[Finding]:
    if seen.unused:
        return
    known, names = seen.told.bindings, seen.names
    if known is None:
        yield Finding("bindings", not_told(seen, "queues", seen.address.ctl("list_bindings")))
        return
    wanted = {*names.bindings(), (names.lost, "", names.lost)}
    wanted |= {(exchange, pattern, names.topics) for exchange, pattern in names.arrivals()}
    there = [topic for topic in seen.topics if seen.of_topics.get(names.topic(topic)) is not None]
    wanted |= {(names.topics, names.to_topic(topic), names.topic(topic)) for topic in there}
    lacking = sorted(wanted - {(source, "" if source == names.lost else key, queue) for source, key, queue in known})
    if lacking:
        shown = [f"{source} to {queue}" for source, _, queue in lacking]
        advice = f"messages that need them go to {names.lost}: {AGAIN}"
        yield Finding("bindings", f"{len(lacking)} of {len(wanted)} are missing: {_few(shown)}", "bad", advice)
    else:
        yield Finding("bindings", f"all {len(wanted)} are there")


def arguments(seen: BrokerSeen) -> Iterator[Finding]:
    """A queue keeps what it was made with. One that somebody else has made may do otherwise."""
    queues = seen.told.queues or {}
    other = [
        name
        for name, wanted in seen.names.queues()
        if name in queues and any(queues[name].get("arguments", {}).get(key) != value for key, value in wanted.items())
    ]
    if other:
        advice = "somebody has made them otherwise than bide does: use another namespace, or run `bide doctor --remove`"
        yield Finding("arguments", f"not those of bide: {_few(other)}", "bad", advice)


def silent(seen: BrokerSeen) -> Iterator[Finding]:
    """Queues that are there and don't answer, as most of their replicas are away."""
    troubled = [name for name, found in {**seen.queues, **seen.of_topics}.items() if isinstance(found, BideError)]
    if troubled:
        advice = "most of their replicas are down: start the nodes that are away. What they hold is safe until then"
        yield Finding("silent queues", f"{_few(troubled)}", "bad", advice)


def unknown_topics(seen: BrokerSeen) -> Iterator[Finding]:
    """The index is written once the queue is there, so a process that was killed in between has left one unwritten."""
    if seen.told.queues is None or not isinstance(seen.queues.get(seen.names.index), Counts):
        return
    prefix = seen.names.topic("")
    topics = [name.removeprefix(prefix) for name in seen.told.queues if name.startswith(prefix)]
    left_out = sorted(set(topics) - set(seen.topics))
    if left_out:
        advice = "they work, but bide does not list them: run `bide doctor --fix`"
        yield Finding("topics without an entry", f"{len(left_out)}: {_few(left_out)}", "warn", advice)
    gone = sorted(topic for topic in seen.topics if topic not in topics)
    if gone:
        yield Finding(
            "topics without a queue",
            f"{len(gone)}: {_few(gone)}",
            "warn",
            "somebody has removed it: sending to it makes it again",
        )


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    more = len(listed) - FEW
    return ", ".join(listed[:FEW]) + (f" and {more} more" if more > 0 else "")


def replicas(seen: BrokerSeen) -> Iterator[Finding]:
    queues, nodes = _replicated(seen), len(seen.told.nodes or ())
    if queues is None:
        if not seen.unused:
            yield Finding("replicas", not_told(seen, "queues", seen.address.ctl("list_queues name members online leader")))
        return
    if not queues:
        return
    least = min(len(queue["members"]) for queue in queues.values())
    wanted = min(ENOUGH, max(nodes, 1))
    few = [name for name, queue in queues.items() if len(queue["members"]) < wanted]
    if few:
        grow = f"rabbitmq-queues grow NODE all --queue-pattern '^{seen.names.prefix}'"
        if seen.names.index in few:
            grow += f", and rabbitmq-streams add_replica {seen.names.index} NODE"
        advice = f"the loss of a node can stop or lose them. Run, for each node: {grow}"
        yield Finding("replicas", f"{len(few)} of {len(queues)} queues have fewer than {wanted}", "warn", advice)
    else:
        one = "; a cluster of three nodes goes on when one is lost" if least == 1 else ""
        yield Finding("replicas", f"{least} of each queue{one}" if nodes else f"at least {least} of each queue")
    behind = {name: queue for name, queue in queues.items() if len(queue["online"]) < len(queue["members"])}
    stopped = [name for name, queue in behind.items() if 2 * len(queue["online"]) <= len(queue["members"])]
    if stopped:
        advice = "they neither take nor give messages until most of their replicas are back: start the nodes that are down"
        yield Finding("replicas online", f"{len(stopped)} of {len(queues)} queues have too few", "bad", advice)
    elif behind:
        away = sorted({member for queue in behind.values() for member in {*queue["members"]} - {*queue["online"]}})
        advice = "start it; if it never comes back, run: rabbitmq-queues shrink NODE, and grow on another"
        yield Finding(
            "replicas online", f"{len(behind)} of {len(queues)} queues lack one, on {', '.join(away)}", "warn", advice
        )


def leaders(seen: BrokerSeen) -> Iterator[Finding]:
    queues = _replicated(seen)
    running = sorted(str(each["name"]) for each in seen.told.nodes or () if each.get("running"))
    if not queues or len(running) < 2:
        return
    count = Counter(str(queue.get("leader") or queue.get("node")) for queue in queues.values())
    value = ", ".join(f"{count[node]} on {node}" for node in running)
    uneven = max(count[node] for node in running) > UNEVEN * sum(count.values()) / len(running)
    yield judged("leaders", value, "warn", "one node does most of the work: rabbitmq-queues rebalance quorum", when=uneven)


def _replicated(seen: BrokerSeen) -> Mapping[str, Mapping[str, Any]] | None:
    """Quorum queues and streams."""
    if seen.told.queues is None:
        return None
    return {name: each for name, each in seen.told.queues.items() if "members" in each and "online" in each}


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


def policies(seen: BrokerSeen) -> Iterator[Finding]:
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


def _harmful(seen: BrokerSeen, name: str, queue: Mapping[str, Any]) -> Iterator[_Told]:
    kind = name.removeprefix(seen.names.prefix).partition(":")[0]
    named = [str(queue[field]) for field in ("policy", "operator_policy") if queue.get(field)]
    for key, value in (queue.get("effective_policy_definition") or {}).items():
        if (kind, key) in _SENTENCES and not _harmless(seen, name, key, value):
            yield _Told(" and ".join(named), kind, key, str(value))


def _harmless(seen: BrokerSeen, name: str, key: str, value: object) -> bool:
    """Of two times, the queue's and the policy's, the shorter one counts. Of two kinds of overflow, the policy's does."""
    if key == "overflow":
        return value == "reject-publish"
    if key == "message-ttl" and isinstance(value, int):
        own = next((step.ms for step in STEPS if seen.names.wait(step) == name), None)
        return own is not None and value >= own
    return False
