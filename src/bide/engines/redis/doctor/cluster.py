"""A Redis Cluster: what its nodes say of it, how the queue lies over them, then each node itself."""

import copy
from collections.abc import Iterator, Sequence

from bide.core.formats import plural
from bide.engines.base import Finding
from bide.engines.redis import failures
from bide.engines.redis.client import Endpoint
from bide.engines.redis.doctor import copies, servers, slots
from bide.engines.redis.doctor.slots import View, state, view_of
from bide.engines.redis.doctor.visits import BRIEF, Look, Refusal, ServerTold, Stop, Visits, answers_to, merged
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.topology import SLOTS

ASKED = answers_to(info=("CLUSTER", "INFO"), slots=("CLUSTER", "SLOTS"), nodes=("CLUSTER", "NODES"))


def examine(namespace: Namespace) -> list[Finding]:
    address, visits = namespace.address, Visits(namespace, BRIEF)
    seeds = visits.all([Stop(address, place) for place in address.seeds], ASKED)
    view = _best(address, seeds)
    if view is None:
        return merged(_strange(address, seeds))
    visits.namespace = own = copy.copy(namespace)  # the queue learns for itself how it is spread
    layout = slots.learn(visits, own, view)
    there = slots.where(own, view)
    masters = view.masters
    replicas = view.replicas
    stops = [Stop(address, place, there.get(place, ())) for place in masters]
    stops += [Stop(address, place) for each in replicas.values() for place in each]
    told = dict(zip([stop.place for stop in stops], visits.all(stops, _ask), strict=True))
    holding = [told[place] for place in masters if place in there]
    pairs = [(told[place], [told[each] for each in replicas[place]]) for place in masters]
    return [
        Finding("mode", f"Redis Cluster, {plural(len(masters), 'master')}, {plural(len(stops) - len(masters), 'replica')}"),
        *_state(list(told.values()) or seeds),
        *_slots(view),
        *_nodes(view, list(told.values())),
        *copies.versions(list(told.values())),
        *layout,
        *slots.spread(own, view, there),
        *slots.moving(visits, own, view, told),
        *merged((each.where, finding) for each in holding for finding in each.findings),
        *merged(_copies(pairs, namespace.confirm)),
    ]


def _best(address: Endpoint, seeds: Sequence[ServerTold]) -> View | None:
    """Of the node that knows most: one that was away has yet to hear of elections."""
    views = [view for place, told in zip(address.seeds, seeds, strict=True) if (view := view_of(told, place))]
    ranks = [(view.state.get("cluster_state") == "ok", int(view.state.get("cluster_current_epoch", 0))) for view in views]
    return views[ranks.index(max(ranks))] if views else None


def _strange(address: Endpoint, seeds: Sequence[ServerTold]) -> Iterator[tuple[str, Finding]]:
    """Of no node that could help."""
    for each in seeds:
        refused = next((answer for answer in each.answers.values() if isinstance(answer, Refusal)), None)
        if each.lost is not None:
            yield each.where, each.lost
        elif refused is not None:
            why = failures.from_node(address.shown, refused.error)
            yield each.where, Finding("cluster", f"not known: {refused}", "bad", str(why or "see `bide doctor --acl`"))


def _ask(look: Look, told: ServerTold) -> None:
    ASKED(look, told)
    servers.ask(look, told)


def _state(told: Sequence[ServerTold]) -> Iterator[Finding]:
    infos = {each.where: state(each.answers["info"]) for each in told if isinstance(each.answers.get("info"), bytes)}
    failing = [where for where, info in infos.items() if info.get("cluster_state") != "ok"]
    if failing:
        by = "" if len(failing) == len(infos) else f", as {', '.join(failing)} say"
        advice = "it serves no messages: slots have no node, or these nodes miss the majority of the masters"
        yield Finding("cluster", f"cluster_state:fail{by}", "bad", advice)
    else:
        yield Finding("cluster", "cluster_state:ok" if infos else "not known: no node told its CLUSTER INFO")


def _slots(view: View) -> Iterator[Finding]:
    missing = view.missing()
    if not view.spans:
        yield Finding("slots", "no node has any", "bad", "make a Cluster of the nodes: `redis-cli --cluster create`")
    elif missing:
        advice = "unless cluster-require-full-coverage is no, it serves no others either: `redis-cli --cluster fix`"
        yield Finding("slots", f"no node has {', '.join(missing)}", "bad", advice)
    else:
        yield Finding("slots", f"all {SLOTS:,} have a node")


def _nodes(view: View, told: Sequence[ServerTold]) -> Iterator[Finding]:
    bad, doubtful = list[str](), list[str]()
    lost = [each.lost for each in told if each.lost is not None]
    for row in view.rows:
        name = view.name(row.id)
        if "fail" in row.flags:
            bad.append(f"{name} fails")
        elif row.flags & {"fail?", "noaddr", "handshake"} or not (row.connected or "myself" in row.flags):
            doubtful.append(f"{name} is not heard of")
    if bad or doubtful:
        advice = "start it, or have it forgotten: CLUSTER FORGET"
        yield Finding("nodes", "; ".join([*bad, *doubtful]), "bad" if bad else "warn", advice)
    for each in lost:
        yield Finding("nodes", each.value, "bad", "programs must reach each node, as its slots may come or go")
    if not view.rows:
        yield Finding("nodes", "what they think of each other is not known: this user may not call CLUSTER NODES")
    elif not (bad or doubtful or lost):
        yield Finding("nodes", f"{len(view.rows)}, all well")


def _copies(pairs: Sequence[tuple[ServerTold, Sequence[ServerTold]]], confirm: str) -> Iterator[tuple[str, Finding]]:
    for master, replicas in pairs:
        yield from ((master.where, finding) for finding in copies.check(master, replicas, "Cluster", confirm))
