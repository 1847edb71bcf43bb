"""What an operator should know of a server: asked, never changed."""

from collections.abc import Callable, Iterator, Mapping

import msgspec
import redis.exceptions as theirs

from bide.engines.base import Finding
from bide.engines.redis.doctor import checks, rights
from bide.engines.redis.doctor.look import Look, refusal
from bide.engines.redis.failures import refused, translated
from bide.engines.redis.namespace import Namespace, ServerClock
from bide.engines.redis.server import Server
from bide.errors import BideError

TIMEOUT = 5.0  # seconds for an answer, also where the URL has more

Check = Callable[[Look], Iterator[Finding]]
CHECKS: Mapping[str, Check] = {
    "server": checks.server,
    "mode": checks.mode,
    "rights": rights.check,
    "layout": checks.layout,
    "memory": checks.memory,
    "eviction": checks.eviction,
    "persistence": checks.persistence,
    "replicas": checks.replicas,
    "waking": checks.waking,
    "clock": checks.clock,
    "engine time": checks.engine_time,
    "slow scripts": checks.slow,
    "messages": checks.messages,
    "connections": checks.connections,
}


def examine(namespace: Namespace) -> list[Finding]:
    shown = namespace.address.shown
    try:
        given = namespace.address
        quick = {"timeout": min(given.timeout, TIMEOUT), "connect_timeout": min(given.connect_timeout, TIMEOUT)}
        server = Server(msgspec.structs.replace(given, **quick), ServerClock())
        connection = server.new_connection()
    except BideError as error:
        return [Finding("server", str(error), "bad")]
    look = Look(namespace, server, connection)
    findings: list[Finding] = []
    try:
        connection.connect()
        for name, check in CHECKS.items():
            findings += _checked(look, name, check)
    except theirs.ResponseError as error:  # a right that every connection needs
        findings.append(Finding("server", str(translated(error, shown, server.secrets)), "bad", "see `bide doctor --acl`"))
    except (theirs.RedisError, OSError, EOFError) as error:
        lost = f"{shown} can't be reached: {server.told(error)}. Is it running, and let in?"
        told = str(translated(error, shown, server.secrets)) if refused(error) else lost
        findings.append(Finding("server", told, "bad", "nothing more can be told"))
    finally:
        server.drop(connection)
    return findings


def _checked(look: Look, name: str, check: Check) -> Iterator[Finding]:
    """What a check finds; what the server refuses to tell is a finding too."""
    try:
        yield from check(look)
    except theirs.ResponseError as error:
        yield Finding(name, f"not known: {refusal(look, error)}")
