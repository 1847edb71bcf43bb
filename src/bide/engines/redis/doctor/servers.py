"""One server or several, as a plain URL names them, also behind a proxy; and what is looked at in each."""

import contextlib
import copy
from collections.abc import Iterator, Mapping, Sequence

import redis.exceptions as theirs

from bide.core.formats import plural
from bide.engines.base import Finding
from bide.engines.findings import Check, judged, run
from bide.engines.redis import failures
from bide.engines.redis.doctor import checks, copies, rights
from bide.engines.redis.doctor.visits import (
    LOST,
    Look,
    Refusal,
    ServerTold,
    Stop,
    Visits,
    answers_to,
    fields,
    merged,
    refusal,
    text_of,
)
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.topology import ShardSpread, read

CHECKS: Mapping[str, Check[Look]] = {
    "server": checks.server,
    "tls": checks.tls,
    "rights": rights.check,
    "layout": checks.layout,
    "memory": checks.memory,
    "eviction": checks.eviction,
    "persistence": checks.persistence,
    "waking": checks.waking,
    "clock": checks.clock,
    "engine time": checks.engine_time,
    "slow scripts": checks.slow,
    "messages": checks.messages,
    "connections": checks.connections,
}
THROUGH_A_PROXY = ("server", "memory", "eviction")
ASKED = 4  # times: a proxy that sends a key somewhere else each time is found out
INFO = "return redis.call('INFO')"
UNSEEN = "rights, persistence, replicas, clocks, slow scripts, connections: ask each server at its own address"
UNKNOWN = "with Twemproxy, a hash such as murmur and several shards a server spread them"


def learn(visits: Visits, namespace: Namespace, first: Stop) -> None:
    """Have the namespace know how it is spread: as the server of the first shard has it, else as the URL says."""

    def ask_for_spread(look: Look, told: ServerTold) -> None:
        with contextlib.suppress(theirs.ResponseError):
            told.answers["spread"] = look.ask("HMGET", f"{namespace.prefix(0)}meta", "shards")[0]

    [told] = visits.all([first], ask_for_spread)
    asked, found = namespace.address.shards, told.answers.get("spread")
    spread = read(text_of(found)) if found else None
    if spread is None or not (spread.epoch or asked in (None, spread.current.size)):
        spread = ShardSpread(0, [namespace.placed(0, asked or 1)])
    namespace.spread_as(spread)


def ask(look: Look, told: ServerTold) -> None:
    """What matters of each server. Those that hold shards are checked as a whole."""
    told.info = look.info
    try:
        told.answers["config"] = look.config("appendfsync", "save")
    except theirs.ResponseError as error:
        told.answers["config"] = Refusal(refusal(look, error))
    if look.shards:
        told.findings += checked(look, *CHECKS)


def checked(look: Look, *names: str) -> Iterator[Finding]:
    """What these checks find. Once the connection is lost, they raise: then nothing more can be asked."""

    def why(error: Exception) -> str | None:
        if isinstance(error, theirs.ResponseError):
            return refusal(look, error)
        if isinstance(error, LOST):
            raise error
        return None

    return run({name: CHECKS[name] for name in names}, look, why)


TORN = (
    "the keys of a shard must stay on one server, or messages are not found again: set the proxy's distribution to ketama or "
    "modula, and its hash_tag to {}"
)
PILED = (
    "one server does most of the work: see that the proxy names several servers and that its hash spreads keys, as murmur "
    "does; then `bide reshard` to another number of shards gives them new names, which spread"
)


def examine_proxied(visits: Visits, namespace: Namespace) -> list[Finding]:
    """Nothing if no proxy is in between: then the server itself tells which one it is."""
    if namespace.address.wake != "poll":
        return []
    stop = Stop(namespace.address, None, namespace.live)
    [itself] = visits.all([stop], answers_to(info=("INFO",)))
    if "run_id" in _fields(itself.answers.get("info", "")):
        return []
    [told] = visits.all([stop], _ask_through)
    found: list[Finding] = told.answers.get("found", [])
    if itself.lost is None and not told.answers.get("servers"):  # a server that does not tell which one it is
        return []
    return [*found, told.lost] if found and told.lost else found


def _ask_through(look: Look, told: ServerTold) -> None:
    infos: dict[str, Mapping[str, str]] = {}  # by their run ids
    there: dict[str, list[int]] = {}
    torn: list[int] = []
    silent: dict[str, list[int]] = {}  # by why they can't be asked
    for shard in look.shards:
        try:
            told_of = [_fields(look.ask("EVAL", INFO, 1, f"{look.namespace.prefix(shard)}meta")) for _ in range(ASKED)]
        except theirs.ResponseError as error:
            silent.setdefault(refusal(look, error), []).append(shard)
            continue
        info = told_of[0]
        if "run_id" not in info:
            silent.setdefault("INFO has no run_id", []).append(shard)
            continue
        if len({each.get("run_id") for each in told_of}) > 1:
            torn.append(shard)
        name = f"port {info.get('tcp_port')}, run id {info['run_id'][:8]}"
        infos[name] = info
        there.setdefault(name, []).append(shard)
    each_tells: list[tuple[str, Finding]] = []
    for name, info in infos.items():
        one = Look(look.namespace, look.server, None, there[name], name, info=info)
        each_tells += [(name, finding) for finding in checked(one, *THROUGH_A_PROXY)]
    told.answers["servers"] = len(infos)
    told.answers["found"] = [
        Finding("mode", f"a proxy; {plural(len(infos), 'server')} behind it {'has' if len(infos) == 1 else 'have'} shards"),
        *checked(look, "layout"),
        *merged(each_tells),
        *([Finding("shards", f"on one server now and on another then: {_named(torn)}", "bad", TORN)] if torn else []),
        *_spread(there, silent),
        Finding("not seen", UNSEEN),
    ]


def _spread(there: Mapping[str, Sequence[int]], silent: Mapping[str, Sequence[int]]) -> Iterator[Finding]:
    """How the shards lie, as far as that is known; it is odd when one server has more than two thirds of several."""
    for why, shards in silent.items():
        yield Finding("shards", f"where these are is not known: {_named(shards)}: {why}", "warn", UNKNOWN)
    lies = [f"{_named(shards)} on {name}" for name, shards in there.items()]
    sizes = [len(shards) for shards in there.values()]
    if lies:
        piled = sum(sizes) > 1 and 3 * max(sizes) > 2 * sum(sizes)
        yield judged("shards", f"{sum(sizes)}: {'; '.join(lies)}", "warn", PILED, when=piled)


def _named(shards: Sequence[int]) -> str:
    return ", ".join(map(str, shards))


def _fields(info: bytes | str) -> Mapping[str, str]:
    return dict(line.split(":", 1) for line in text_of(info).splitlines() if ":" in line)


def examine(namespace: Namespace) -> list[Finding]:
    namespace = copy.copy(namespace)  # the queue learns for itself how it is spread
    visits = Visits(namespace)
    learn(visits, namespace, Stop(namespace.server_of(0)))
    if behind := examine_proxied(visits, namespace):
        return behind
    stops = [
        Stop(address, None, [shard for shard in namespace.live if namespace.server_of(shard) == address])
        for address in dict.fromkeys(map(namespace.server_of, namespace.live))
    ]
    told = visits.all(stops, _ask)
    for stop, master in zip(stops, told, strict=True):
        told_of = copies.places(master) if stop.address.client.scheme != "unix" and master.info.get("role") == "master" else []
        replicas = visits.all([Stop(stop.address, place) for place in told_of], ask)
        if "elsewhere" not in master.answers:
            master.findings += copies.check(master, replicas, "", namespace.confirm)
    return merged(_all(told))


def _all(told: list[ServerTold]) -> Iterator[tuple[str, Finding]]:
    for each in told:
        yield from ((each.where, finding) for finding in each.findings)
        if each.lost is not None:
            yield each.where, each.lost


def _ask(look: Look, told: ServerTold) -> None:
    mode = look.info.get("redis_mode", look.info.get("server_mode", "standalone"))  # the second is Valkey's
    advice = _to_cluster(look) if mode == "cluster" else _to_sentinels(look) if mode == "sentinel" else ""
    found = Finding("mode", mode, "bad" if advice else "ok", advice)
    if advice:  # nothing else that it could tell would be of use
        told.findings += [*checked(look, "server"), found]
        told.answers["elsewhere"] = advice
        return
    ask(look, told)
    told.findings.insert(1, found)


def _to_cluster(look: Look) -> str:
    return f"it has a part of the keys only: {failures.to_cluster(look.server.shown)}"


def _to_sentinels(look: Look) -> str:
    try:
        services = [fields(each).get("name", "") for each in look.ask("SENTINEL", "MASTERS")]
    except theirs.ResponseError:
        services = []
    instead = " or ".join(failures.to_sentinels(look.server.shown, text_of(each)) for each in services or ["SERVICE"])
    return f"it only watches servers: {instead}"
