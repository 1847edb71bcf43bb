"""All checks of one server that holds shards, and what else is asked of each server."""

from collections.abc import Callable, Iterator, Mapping

import redis.exceptions as theirs

from bide.engines.base import Finding
from bide.engines.redis.doctor import checks, rights
from bide.engines.redis.doctor.look import Look, refusal
from bide.engines.redis.doctor.visits import Refusal, Told

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
