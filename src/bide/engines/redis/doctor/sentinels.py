"""A master that Sentinels watch: what they know and agree on, then the master and its replicas themselves."""

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from bide.core.formats import plural, span
from bide.engines.base import Finding
from bide.engines.findings import judged
from bide.engines.redis import failures
from bide.engines.redis.client import Endpoint, Secret, of_url, parameters, scheme_of, sentinel_address
from bide.engines.redis.doctor import copies, servers
from bide.engines.redis.doctor.visits import BRIEF, Refusal, ServerTold, Stop, Visits, answers_to, fields, merged
from bide.engines.redis.failures import SENTINEL_LOGIN
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.server import TIMEOUTS
from bide.engines.redis.topology import ServerPlace, master_of

DOWN = ("s_down", "o_down", "disconnected")
FEW = 3  # with fewer, one that is away stops every failover


def sentinels_of(address: Endpoint) -> tuple[Endpoint, Endpoint] | None:
    """How the servers of the data and how the Sentinels are reached; None when there are no Sentinels."""
    if address.service:
        return address, sentinel_address(address)
    pool = getattr(address.client.given, "connection_pool", None)
    manager = getattr(pool, "sentinel_manager", None)
    if pool is None or manager is None:
        return None
    pools = [each.connection_pool for each in manager.sentinels]
    seeds = tuple(ServerPlace(each.connection_kwargs["host"], int(each.connection_kwargs["port"])) for each in pools)
    data = msgspec.structs.replace(
        address, client=_plain(address.client.scheme, pool.connection_kwargs), seeds=seeds, service=str(pool.service_name)
    )
    taken = pools[0].connection_kwargs
    password = taken.get("password")
    asked = msgspec.structs.replace(
        sentinel_address(data),
        client=_plain(scheme_of(pools[0].connection_class), taken),
        username=taken.get("username"),
        password=Secret(password) if password else None,
    )
    return data, asked


def _plain(scheme: str, taken: Any) -> Any:
    """Connections as the client makes them, but of redis-py's usual class, and sync."""
    known = parameters(of_url(scheme, {}).connection_class("sync"))
    return of_url(scheme, {name: value for name, value in taken.items() if name in known})


def examine(namespace: Namespace, asked: Endpoint) -> list[Finding]:
    """`asked`: how the Sentinels are reached."""
    visits, address = Visits(namespace, BRIEF), namespace.address
    service = address.service
    questions = {name: ("SENTINEL", name.upper(), service) for name in ("master", "ckquorum", "replicas", "sentinels")}
    told = visits.all([Stop(asked, place) for place in address.seeds], answers_to(**questions, masters=("SENTINEL", "MASTERS")))
    knowing = [each for each in told if _row(each)]
    if not knowing:
        return merged(_strange(address, told))
    rows = [_row(each) for each in knowing]
    [_, place] = max(filter(None, (master_of(each.answers["master"]) for each in knowing)))
    known = [fields(row) for row in max((_listed(each, "replicas") for each in knowing), key=len)]
    servers.learn(visits, namespace, Stop(address, place))
    stops = [Stop(address, place, namespace.live), *(Stop(address, _place(row)) for row in known)]
    master, *replicas = visits.all(stops, servers.ask)
    found = [
        Finding("mode", f"the master of {service}, watched by {plural(1 + _most(rows, 'num-other-sentinels'), 'Sentinel')}"),
        *_sentinels(told, rows),
        *_agreed(knowing, place, master),
        *_quorum(knowing),
        _patience(rows, address),
        _nodes(known, [each.answers["replicas"] for each in knowing]),
        *master.findings,
        *copies.check(master, replicas, "Sentinels", namespace.confirm),
        *copies.versions([master, *replicas]),
    ]
    return found if master.lost is None else [*found, master.lost]


def _strange(address: Endpoint, told: Sequence[ServerTold]) -> Iterator[tuple[str, Finding]]:
    """Of no Sentinel that could help."""
    for each in told:
        if each.lost is not None:
            yield each.where, replace(each.lost, advice=SENTINEL_LOGIN) if each.refused else each.lost
            continue
        answer = each.answers["master"]
        services = sorted(fields(row).get("name", "") for row in _listed(each, "masters"))
        why = failures.from_sentinel(address.shown, address.service, answer.error)
        known = f"correct the URL: known are {', '.join(services)}" if services else ""
        advice = known or str(why or "see `bide doctor --acl`")
        yield each.where, Finding("sentinels", f"{address.service} is not known: {answer}", "bad", advice)


def _sentinels(told: Sequence[ServerTold], rows: Sequence[dict[str, str]]) -> Iterator[Finding]:
    away = [f"{each.where} can't be reached" for each in told if each.lost is not None]
    away += [f"{each.where}: {each.answers['master']}" for each in told if each.lost is None and not _row(each)]
    value, there = "; ".join([f"{len(rows)} of {len(told)} answer", *away]), 1 + _most(rows, "num-other-sentinels")
    if away:
        yield Finding("sentinels", value, "bad" if len(rows) <= len(told) / 2 else "warn", "start them, or mend the URL")
    else:
        advice = f"there should be {FEW} or more: with fewer, one that is away stops failovers"
        yield judged("sentinels", value, "warn", advice, when=there < FEW)


def _agreed(knowing: Sequence[ServerTold], place: ServerPlace, master: ServerTold) -> Iterator[Finding]:
    named: dict[str, list[str]] = {}
    for each in knowing:
        row = _row(each)
        named.setdefault(f"{row.get('ip')}:{row.get('port')}", []).append(each.where)
    flags = {flag for each in knowing for flag in _row(each).get("flags", "").split(",")}
    if len(named) > 1:
        value = "; ".join(f"{place} by {', '.join(where)}" for place, where in named.items())
        yield Finding("master", value, "bad", "they disagree: is a failover under way, or are some cut off?")
    elif not flags.isdisjoint(DOWN):
        yield Finding("master", f"{place} is down, as some say", "bad", "a failover should follow: see quorum")
    elif master.info.get("role") == "slave":
        yield Finding("master", f"{place} is a replica now", "bad", "a failover is under way, or the Sentinels were not told")
    else:
        yield Finding("master", f"{place}, as all say")


def _quorum(knowing: Sequence[ServerTold]) -> Iterator[Finding]:
    answers = {each.where: each.answers["ckquorum"] for each in knowing}
    unknown = {where: answer for where, answer in answers.items() if isinstance(answer, Refusal)}
    missed = [f"{where}: {answer.error}" for where, answer in unknown.items() if "NOQUORUM" in answer.error]
    if missed:
        yield Finding("quorum", "; ".join(missed), "bad", "too few Sentinels can be asked for a failover: start the others")
    elif len(unknown) == len(answers):
        yield Finding("quorum", f"not known: {next(iter(unknown.values()))}")
    else:
        yield Finding("quorum", "enough for a failover")


def _patience(rows: Sequence[dict[str, str]], address: Endpoint) -> Finding:
    times = sorted({int(row.get("down-after-milliseconds", 0)) for row in rows})
    waits = TIMEOUTS * address.timeout
    value = " or ".join(span(each / 1000) for each in times)
    if len(times) > 1:
        return Finding("down-after", value, "warn", "the Sentinels differ: set the same down-after-milliseconds on all")
    advice = f"calls fail after {span(waits)}, before a replica is promoted: set it lower, or timeout= in the URL higher"
    return judged("down-after", value, "warn", advice, when=times[-1] / 1000 >= waits)


def _nodes(known: Sequence[dict[str, str]], answers: Sequence[Any]) -> Finding:
    if all(isinstance(answer, Refusal) for answer in answers):
        return Finding("nodes", f"which replicas there are is not known: {answers[0]}")
    down = [str(_place(row)) for row in known if not set(DOWN).isdisjoint(row.get("flags", "").split(","))]
    never = [str(_place(row)) for row in known if row.get("slave-priority") == "0"]
    value = f"{plural(len(known), 'replica')} known to the Sentinels"
    if down:
        return Finding("nodes", f"{value}, down: {', '.join(down)}", "warn", "start it, or have it forgotten: SENTINEL RESET")
    if never and len(never) == len(known):
        return Finding("nodes", f"{value}, none may be promoted", "warn", "replica-priority 0 keeps them from it: raise one")
    return Finding("nodes", value)


def _row(told: ServerTold) -> dict[str, str]:
    """What a Sentinel told of the service; nothing when it knows none."""
    answer = told.answers.get("master")
    return fields(answer) if isinstance(answer, list) and master_of(answer) else {}


def _listed(told: ServerTold, name: str) -> Sequence[Sequence[bytes]]:
    answer = told.answers.get(name)
    return answer if isinstance(answer, list) else []


def _place(row: dict[str, str]) -> ServerPlace:
    return ServerPlace(row.get("ip", ""), int(row.get("port", 0)))


def _most(rows: Sequence[dict[str, str]], name: str) -> int:
    return max(int(row.get(name, 0)) for row in rows)
