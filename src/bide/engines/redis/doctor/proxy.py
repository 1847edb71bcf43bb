"""Servers behind a proxy, which tells nothing of them: a script that is sent to a shard asks the server on which it runs."""

from collections.abc import Iterator, Mapping, Sequence

import redis.exceptions as theirs

from bide.core.formats import plural
from bide.engines.base import Finding
from bide.engines.redis.doctor import checks, servers
from bide.engines.redis.doctor.look import Look, refusal, text_of
from bide.engines.redis.doctor.visits import Stop, Told, Visits, answers_to, merged
from bide.engines.redis.namespace import Namespace

ASKED = 4  # times: a proxy that sends a key somewhere else each time is found out
INFO = "return redis.call('INFO')"
UNSEEN = "rights, persistence, replicas, clocks, slow scripts, connections: ask each server at its own address"
UNKNOWN = "with Twemproxy, a hash such as murmur and several shards a server spread them"
TORN = (
    "the keys of a shard must stay on one server, or messages are not found again: set the proxy's distribution to ketama or "
    "modula, and its hash_tag to {}"
)
PILED = (
    "one server does most of the work: see that the proxy names several servers and that its hash spreads keys, as murmur "
    "does; then `bide reshard` to another number of shards gives them new names, which spread"
)


def examine(visits: Visits, namespace: Namespace) -> list[Finding]:
    """Nothing if no proxy is in between: then the server itself tells which one it is."""
    if namespace.address.wake != "poll":
        return []
    stop = Stop(namespace.address, None, namespace.live)
    [itself] = visits.all([stop], answers_to(info=("INFO",)))
    if "run_id" in _fields(itself.answers.get("info", "")):
        return []
    [told] = visits.all([stop], _ask)
    found: list[Finding] = told.answers.get("found", [])
    if itself.lost is None and not told.answers.get("servers"):  # a server that does not tell which one it is
        return []
    return [*found, told.lost] if found and told.lost else found


def _ask(look: Look, told: Told) -> None:
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
        for check in (checks.server, checks.memory, checks.eviction):
            each_tells += [(name, finding) for finding in check(one)]
    told.answers["servers"] = len(infos)
    told.answers["found"] = [
        Finding("mode", f"a proxy; {plural(len(infos), 'server')} behind it {'has' if len(infos) == 1 else 'have'} shards"),
        *servers.checked(look, "layout", checks.layout),
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
    if lies and sum(sizes) > 1 and 3 * max(sizes) > 2 * sum(sizes):
        yield Finding("shards", f"{sum(sizes)}: {'; '.join(lies)}", "warn", PILED)
    elif lies:
        yield Finding("shards", f"{sum(sizes)}: {'; '.join(lies)}")


def _named(shards: Sequence[int]) -> str:
    return ", ".join(map(str, shards))


def _fields(info: bytes | str) -> Mapping[str, str]:
    return dict(line.split(":", 1) for line in text_of(info).splitlines() if ":" in line)
