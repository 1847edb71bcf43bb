"""What bide must be allowed to ask of a server: as lines for `redis-cli`, as one question, and question by question."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

import redis.exceptions as theirs

from bide.engines.base import Finding
from bide.engines.redis.client import Endpoint, Wake
from bide.engines.redis.doctor.visits import Look, text_of
from bide.engines.redis.script import CALLS, KEY, POLLS

Role: TypeAlias = Literal["producer", "worker"]

ROLES: Sequence[Role] = ("producer", "worker")
EXPIRED = "__keyevent@*__:expired"  # what wake=expiry subscribes to

_SLEEPS: Mapping[Wake, Mapping[str, str]] = {
    "list": {"blpop": f"{KEY} 1", "client|id": "", "client|unblock": "1", "exec": "", "multi": ""},
    "poll": POLLS,
    "expiry": {"client|id": "", "subscribe": EXPIRED},
}
"""What a user who receives calls as well, by the way it is woken. Scripts can't be told apart: all else is the same."""

_OPENS: Mapping[Wake, Mapping[str, str]] = {
    "list": {"client|setname": "bide"},
    "poll": {},
    "expiry": {"client|setname": "bide", "config|get": "notify-keyspace-events"},
}
"""What everybody calls as well to open a queue."""

_GROUPS: Mapping[str, Mapping[str, str]] = {
    "": {},
    "Sentinels": {"role": ""},
    "Cluster": {"cluster|info": "", "cluster|slots": ""},
}
"""What everybody calls as well, by who tells where a shard is."""

_CONFIRMS: Mapping[str, Mapping[str, str]] = {
    "memory": {},
    "aof": {"waitaof": "0 0 1"},
    "replicas": {"wait": "0 1"},
}
"""What everybody calls as well, by what a change waits for."""

REMARK = (
    "Put a password of your own in place of CHANGE-ME. Redis 7.2 and newer, and Valkey: add +client|setinfo to each line, or "
    "every connection leaves a note in ACL LOG. Older ones don't know it, and refuse the line."
)

ASK = """
local missing = {}
for i = 1, #ARGV do
  local words = {}
  for word in string.gmatch(ARGV[i], '%S+') do words[#words + 1] = word end
  local known, allowed = pcall(redis.acl_check_cmd, unpack(words))
  if not known or not allowed then missing[#missing + 1] = i end
end
return missing
"""
"""A script that gives the numbers of the calls that its user may not make. It needs Redis 7.0, and no right but EVAL."""


class Use(NamedTuple):
    """How a queue is used, as far as rights depend on it."""

    wake: Wake = "list"
    group: str = ""
    confirm: str = "memory"

    @staticmethod
    def of(address: Endpoint) -> "Use":
        group = "Cluster" if address.clustered else "Sentinels" if address.service else ""
        return Use(address.wake, group, address.confirm.partition(":")[0])


PLAIN = Use()


def needed(role: Role, use: Use = PLAIN) -> list[str]:
    """What a producer calls, who sends, looks, cancels and moves; or a worker, who receives as well."""
    return sorted(_samples(role, use))


def _samples(role: Role, use: Use) -> dict[str, str]:
    also = {**_OPENS[use.wake], **_GROUPS[use.group], **_CONFIRMS[use.confirm]}
    return {**CALLS, **also, **(_SLEEPS[use.wake] if role == "worker" else {})}


def line(role: Role, namespace: str, use: Use = PLAIN, *, database: int = 0) -> str:
    """Makes a user of this role, who sees this namespace and nothing else."""
    channel = f" &{EXPIRED}" if role == "worker" and use.wake == "expiry" else ""
    grants = " ".join(f"+{name}" for name in [*needed(role, use), *(["select"] if database else [])])
    return f"ACL SETUSER bide-{role} on resetpass >CHANGE-ME resetkeys resetchannels ~{{{namespace}:*{channel} -@all {grants}"


def calls(key: str, use: Use = PLAIN) -> list[str]:
    """What a worker calls, in the order of its rights: a line each, as ASK takes them."""
    samples = _samples("worker", use)
    return [f"{name.replace('|', ' ')} {samples[name].replace(KEY, key)}" for name in needed("worker", use)]


def missing_in(flags: Sequence[str], commands: str, use: Use = PLAIN) -> list[str] | None:
    """What a worker lacks by what ACL GETUSER tells before 7.0; None when the rules are no plain list."""
    if "allcommands" in flags:
        return []
    first, *rules = commands.split() or [""]
    if first != "-@all" or any(rule[0] != "+" or "@" in rule for rule in rules):
        return None
    held = {rule[1:].lower() for rule in rules}
    return [name for name in needed("worker", use) if name not in held and name.partition("|")[0] not in held]


def _finding(missing: Sequence[str] | None, use: Use) -> Finding:
    """What to make of the rights that a worker lacks, where that could be told."""
    if missing is None:
        return Finding("rights", "not known: Redis can't tell before 7.0 what such rules come to")
    if not missing:
        return Finding("rights", "all that a worker needs")
    names = ", ".join(missing)
    if set(missing).isdisjoint(needed("producer", use)):
        return Finding("rights", "all that a producer needs", "warn", f"it can't receive: a worker also needs {names}")
    return Finding("rights", f"missing: {names}", "bad", "`bide doctor --acl` prints lines that grant what is needed")


def check(look: Look) -> Iterator[Finding]:
    try:
        yield _finding(_missing(look), _use(look))
    except theirs.NoPermissionError:
        if look.asked not in ("EVAL", "INFO"):
            raise
        yield _finding([look.asked.lower()], _use(look))


def _use(look: Look) -> Use:
    use = Use.of(look.namespace.address)
    return use._replace(confirm="memory") if use.confirm == "aof" and look.version < (7, 2) else use  # it has no WAITAOF


def _missing(look: Look) -> list[str] | None:
    use = _use(look)
    if look.version >= (7, 0):
        numbers = look.ask("EVAL", ASK, 0, *calls(f"{look.namespace.prefix(look.shards[0])}meta", use))
        return [needed("worker", use)[number - 1] for number in numbers]
    flat = look.ask("ACL", "GETUSER", look.ask("ACL", "WHOAMI"))
    user = {text_of(name): value for name, value in zip(flat[::2], flat[1::2], strict=False)}
    return missing_in([text_of(flag) for flag in user["flags"]], text_of(user["commands"]), use)
