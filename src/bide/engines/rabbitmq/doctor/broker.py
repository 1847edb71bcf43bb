"""What is found of the broker itself: version, nodes, alarms, the user's rights, and whether it loses messages."""

import shlex
from collections.abc import Iterator

from bide.core.formats import span
from bide.engines.base import Finding
from bide.engines.findings import judged
from bide.engines.rabbitmq.doctor.probe import SOON
from bide.engines.rabbitmq.doctor.seen import BrokerSeen

OLDEST = (3, 10)
ALWAYS_ON = (4, 0)  # since then the broker can't be without the feature flag stream_queue
SKEW = 1.0  # seconds
TUNED = "[{rabbit, [{dead_letter_worker_publisher_confirm_timeout, 5000}, {dead_letter_worker_consumer_prefetch, 512}]}]."
STALL = "after a restart of the broker or the loss of a node, messages that were under way then are late by"


def server(seen: BrokerSeen) -> Iterator[Finding]:
    product, version = seen.broker.get("product", "a broker"), seen.broker.get("version", "of an unknown version")
    value = f"{product} {version}"
    if product != "RabbitMQ":
        yield Finding("broker", value, "bad", "bide needs RabbitMQ itself: others don't dead-letter at least once")
    else:
        advice = "bide needs RabbitMQ 3.10 or newer, which can dead-letter at least once"
        yield judged("broker", value, "bad", advice, when=seen.version < OLDEST)


def management(seen: BrokerSeen) -> Iterator[Finding]:
    told = seen.told
    if not told.shown:
        value = "not asked: add management=http://host:15672 to the URL, and the doctor asks there what AMQP does not tell"
        yield Finding("management", value)
    elif "queues" in told.refused:
        advice = (
            "see that the plugin rabbitmq_management is on, and that the user has the tag monitoring: "
            f"rabbitmqctl set_user_tags {shlex.quote(told.user)} monitoring"
        )
        yield Finding("management", f"{told.shown}: {told.refused['queues']}", "warn", advice)
    else:
        yield Finding("management", told.shown)


def nodes(seen: BrokerSeen) -> Iterator[Finding]:
    cluster, known = seen.broker.get("cluster_name", "unnamed"), seen.told.nodes
    if known is None:
        yield Finding("nodes", f"of the cluster {cluster}. {not_told(seen, 'nodes', 'rabbitmqctl cluster_status')}")
        return
    away = sorted(str(each["name"]) for each in known if not each.get("running"))
    value = f"{len(known) - len(away)} of {len(known)} run in the cluster {cluster}"
    value += f"; {', '.join(away)} is down" if away else ""
    yield judged("nodes", value, "warn", "start it, or make the cluster forget it", when=bool(away))
    split = sorted(str(each["name"]) for each in known if each.get("partitions"))
    if split:
        yield Finding(
            "partition", f"seen by {', '.join(split)}", "bad", "the nodes have lost each other: restart the smaller part"
        )


def alarms(seen: BrokerSeen) -> Iterator[Finding]:
    """The management API tells which, but some seconds late. Whoever tries to send is told at once, but not which."""
    low = [
        f"{kind} of {each['name']}"
        for each in seen.told.nodes or ()
        for kind, field in (("memory", "mem_alarm"), ("disk", "disk_free_alarm"))
        if each.get(field)
    ]
    if low or seen.probed.blocked:
        value = ", ".join(low) or "memory or disk: the broker takes no messages. Ask: rabbitmq-diagnostics alarms"
        advice = "the broker takes no messages until it has room: give it some, or let receivers go on"
        yield Finding("alarms", value, "bad", advice)
    else:
        yield Finding("alarms", "none: the broker takes messages")


def flags(seen: BrokerSeen) -> Iterator[Finding]:
    if seen.version >= ALWAYS_ON:
        return
    if seen.told.flags is None:
        yield Finding("stream_queue", not_told(seen, "flags", "rabbitmqctl list_feature_flags"))
        return
    state = seen.told.flags.get("stream_queue", "unknown")
    advice = "the broker does not dead-letter at least once without it: rabbitmqctl enable_feature_flag stream_queue"
    yield judged("stream_queue", state, "bad", advice, when=state != "enabled")


def rights(seen: BrokerSeen) -> Iterator[Finding]:
    if seen.probed.refused:
        yield Finding("rights", "; ".join(seen.probed.refused), "bad", f"give the user its rights: {seen.address.rights}")
    elif seen.probed.trouble:
        yield Finding("rights", f"not known: {seen.probed.trouble}", "warn", "see what else is wrong, and ask again")
    elif not seen.probed.blocked:
        yield Finding("rights", "all that a worker needs")


def dead_lettering(seen: BrokerSeen) -> Iterator[Finding]:
    """What a queue declares is not always what it does, so it was tried."""
    probed = seen.probed
    if probed.at_least_once is None:
        yield Finding("dead-lettering", "could not be tried")
        return
    if not probed.at_least_once:
        advice = (
            "delayed messages could be lost, so bide does not use this broker: run `rabbitmqctl enable_feature_flag "
            f"stream_queue`, and see by `{seen.address.ctl('list_policies')}` that none sets overflow for queues that begin "
            f"with {seen.names.prefix}wait"
        )
        yield Finding("dead-lettering", "at most once", "bad", advice)
    elif not probed.passed_on:
        advice = "delayed messages don't arrive: see the broker's log, and whether a policy sets message-ttl or dead-lettering"
        yield Finding("dead-lettering", "a message that expired was not passed on", "bad", advice)
    else:
        yield Finding("dead-lettering", "at least once; tried")


def after_failures(seen: BrokerSeen) -> Iterator[Finding]:
    """The broker does not tell its settings for this either, so what they do was tried."""
    again = seen.probed.again
    if again is not None:
        yield Finding(
            "after a restart", f"messages under way are late by 5 to 10 s: the broker tried again after {again:.1f} s"
        )
    elif seen.probed.at_least_once:
        advice = f"{STALL} up to 180 s, or longer. It is 5 to 10 s with this in the broker's advanced.config: {TUNED}"
        yield Finding("after a restart", f"the broker does not try again within {SOON:.0f} s", "warn", advice)


def clock(seen: BrokerSeen) -> Iterator[Finding]:
    behind, unsure = seen.probed.behind, seen.probed.unsure
    if behind is None:
        return
    if abs(behind) <= unsure:
        yield Finding("clock", f"as this machine's, within {unsure:.1f} s")
        return
    way = "behind" if behind > 0 else "ahead of"
    value = f"{span(abs(behind)) or f'{abs(behind):.1f}s'} {way} this machine's, within {unsure:.1f} s"
    advice = "the broker's clock decides what is due: set both by NTP"
    yield judged("clock", value, "warn", advice, when=abs(behind) > SKEW + unsure)


def consumer_timeout(seen: BrokerSeen) -> Iterator[Finding]:
    """The broker closes the channel of who holds a message for longer. It tells this to nobody before it does."""
    ours = seen.address.consumer_timeout
    for name, queue in sorted((seen.told.queues or {}).items()):
        theirs = (queue.get("effective_policy_definition") or {}).get("consumer-timeout")
        if isinstance(theirs, int) and theirs < ours * 1000 and name.startswith(seen.names.topic("")):
            advice = f"who works for longer loses the message: raise it, or write consumer_timeout={theirs // 1000} in the URL"
            yield Finding("consumer_timeout", f"{theirs // 1000} s by a policy, and {ours:g} s in the URL", "bad", advice)
            return
    asked = "rabbitmqctl eval 'application:get_env(rabbit, consumer_timeout).'"
    yield Finding(
        "consumer_timeout", f"taken for {ours:g} s. The broker does not tell its own; it must not be shorter: {asked}"
    )


def not_told(seen: BrokerSeen, what: str, command: str) -> str:
    """That it is not known, and how an operator finds out."""
    why = seen.told.refused.get(what)
    if why is not None and why == seen.told.refused.get("queues"):
        why = "see management"
    return f"not known{f', the management API says: {why}' if why else ' over AMQP'}. Ask: {command}"
