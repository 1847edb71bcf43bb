"""What is found of the exchanges, queues and bindings of the namespace: whether all are there, as they should be."""

from collections.abc import Iterable, Iterator

from bide.engines.base import Finding
from bide.engines.rabbitmq.doctor.broker import not_told
from bide.engines.rabbitmq.doctor.look import Counts
from bide.engines.rabbitmq.doctor.seen import Seen
from bide.errors import BideError

FEW = 5  # names that are written out
AGAIN = "run `bide doctor --fix`, which makes what is missing"


def layout(seen: Seen) -> Iterator[Finding]:
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


def bindings(seen: Seen) -> Iterator[Finding]:
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


def arguments(seen: Seen) -> Iterator[Finding]:
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


def silent(seen: Seen) -> Iterator[Finding]:
    """Queues that are there and don't answer, as most of their replicas are away."""
    troubled = [name for name, found in {**seen.queues, **seen.of_topics}.items() if isinstance(found, BideError)]
    if troubled:
        advice = "most of their replicas are down: start the nodes that are away. What they hold is safe until then"
        yield Finding("silent queues", f"{_few(troubled)}", "bad", advice)


def unknown_topics(seen: Seen) -> Iterator[Finding]:
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
