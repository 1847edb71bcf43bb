"""All checks of one server that holds shards, and what else is asked of each server."""

import contextlib
from collections.abc import Callable, Iterator, Mapping

import redis.exceptions as theirs

from bide.engines.base import Finding
from bide.engines.redis.doctor import checks, rights
from bide.engines.redis.doctor.look import Look, refusal, text_of
from bide.engines.redis.doctor.visits import Refusal, Stop, Told, Visits
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.spread import Spread, read

Check = Callable[[Look], Iterator[Finding]]
CHECKS: Mapping[str, Check] = {
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


def learn(visits: Visits, namespace: Namespace, first: Stop) -> None:
    """Have the namespace know how it is spread: as the server of the first shard has it, else as the URL says."""

    def ask_for_spread(look: Look, told: Told) -> None:
        with contextlib.suppress(theirs.ResponseError):
            told.answers["spread"] = look.ask("HMGET", f"{namespace.prefix(0)}meta", "shards")[0]

    [told] = visits.all([first], ask_for_spread)
    asked, found = namespace.address.shards, told.answers.get("spread")
    spread = read(text_of(found)) if found else None
    if spread is None or not (spread.epoch or asked in (None, spread.current.size)):
        spread = Spread(0, [namespace.placed(0, asked or 1)])
    namespace.spread_as(spread)


def ask(look: Look, told: Told) -> None:
    """What matters of each server. Those that hold shards are checked as a whole."""
    told.info = look.info
    try:
        told.answers["config"] = look.config("appendfsync", "save")
    except theirs.ResponseError as error:
        told.answers["config"] = Refusal(refusal(look, error))
    for name, check in CHECKS.items() if look.shards else ():
        told.findings += checked(look, name, check)


def checked(look: Look, name: str, check: Check) -> list[Finding]:
    """What a check finds; what the server refuses to tell is a finding too."""
    found: list[Finding] = []
    try:
        found += check(look)
    except theirs.ResponseError as error:
        found.append(Finding(name, f"not known: {refusal(look, error)}"))
    return found
