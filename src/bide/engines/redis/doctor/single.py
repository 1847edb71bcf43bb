"""One server, or several of which each has shards, as a plain URL names them."""

import copy
from collections.abc import Iterator

import redis.exceptions as theirs

from bide.engines.base import Finding
from bide.engines.redis import astray
from bide.engines.redis.doctor import copies, proxy, servers
from bide.engines.redis.doctor.look import Look, text_of
from bide.engines.redis.doctor.visits import Stop, Told, Visits, fields, merged
from bide.engines.redis.namespace import Namespace


def examine(namespace: Namespace) -> list[Finding]:
    namespace = copy.copy(namespace)  # the queue learns for itself how it is spread
    visits = Visits(namespace)
    servers.learn(visits, namespace, Stop(namespace.server_of(0)))
    if behind := proxy.examine(visits, namespace):
        return behind
    stops = [
        Stop(address, None, [shard for shard in namespace.live if namespace.server_of(shard) == address])
        for address in dict.fromkeys(map(namespace.server_of, namespace.live))
    ]
    told = visits.all(stops, _ask)
    for stop, master in zip(stops, told, strict=True):
        told_of = copies.places(master) if stop.address.client.scheme != "unix" and master.info.get("role") == "master" else []
        replicas = visits.all([Stop(stop.address, place) for place in told_of], servers.ask)
        if "elsewhere" not in master.answers:
            master.findings += copies.check(master, replicas, "", namespace.confirm)
    return merged(_all(told))


def _all(told: list[Told]) -> Iterator[tuple[str, Finding]]:
    for each in told:
        yield from ((each.where, finding) for finding in each.findings)
        if each.lost is not None:
            yield each.where, each.lost


def _ask(look: Look, told: Told) -> None:
    mode = look.info.get("redis_mode", look.info.get("server_mode", "standalone"))  # the second is Valkey's
    advice = _to_cluster(look) if mode == "cluster" else _to_sentinels(look) if mode == "sentinel" else ""
    found = Finding("mode", mode, "bad" if advice else "ok", advice)
    if advice:  # nothing else that it could tell would be of use
        told.findings += [*servers.checked(look, "server", servers.CHECKS["server"]), found]
        told.answers["elsewhere"] = advice
        return
    servers.ask(look, told)
    told.findings.insert(1, found)


def _to_cluster(look: Look) -> str:
    return f"it has a part of the keys only: {astray.to_cluster(look.server.shown)}"


def _to_sentinels(look: Look) -> str:
    try:
        services = [fields(each).get("name", "") for each in look.ask("SENTINEL", "MASTERS")]
    except theirs.ResponseError:
        services = []
    instead = " or ".join(astray.to_sentinels(look.server.shown, text_of(each)) for each in services or ["SERVICE"])
    return f"it only watches servers: {instead}"
