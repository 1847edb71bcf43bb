"""What is found of the replicas of queues: whether each has enough of them, and where their leaders are."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from bide.engines.base import Finding
from bide.engines.rabbitmq.doctor.broker import not_told
from bide.engines.rabbitmq.doctor.seen import Seen

ENOUGH = 3  # replicas
UNEVEN = 2.0  # times as many leaders as an even share


def replicas(seen: Seen) -> Iterator[Finding]:
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


def leaders(seen: Seen) -> Iterator[Finding]:
    queues = _replicated(seen)
    running = sorted(str(each["name"]) for each in seen.told.nodes or () if each.get("running"))
    if not queues or len(running) < 2:
        return
    count = Counter(str(queue.get("leader") or queue.get("node")) for queue in queues.values())
    value = ", ".join(f"{count[node]} on {node}" for node in running)
    if max(count[node] for node in running) > UNEVEN * sum(count.values()) / len(running):
        yield Finding("leaders", value, "warn", "one node does most of the work: rabbitmq-queues rebalance quorum")
    else:
        yield Finding("leaders", value)


def _replicated(seen: Seen) -> Mapping[str, Mapping[str, Any]] | None:
    """Quorum queues and streams."""
    if seen.told.queues is None:
        return None
    return {name: each for name, each in seen.told.queues.items() if "members" in each and "online" in each}
