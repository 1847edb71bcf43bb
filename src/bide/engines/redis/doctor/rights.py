"""What bide must be allowed to ask of a server: as lines for `redis-cli`, as one question, and question by question."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, TypeAlias

import redis.exceptions as theirs

from bide.engines.base import Finding
from bide.engines.redis.client import Wake
from bide.engines.redis.doctor.look import Look, text_of

Role: TypeAlias = Literal["producer", "worker"]

ROLES: Sequence[Role] = ("producer", "worker")
KEY = "KEY"  # stands for a key of ours, where a command is shown as it is called
EXPIRED = "__keyevent@*__:expired"  # what wake=expiry subscribes to

_CALLS: Mapping[str, str] = {
    "eval": f"return 1 {KEY}",
    "evalsha": f"- 1 {KEY}",
    "get": KEY,
    "hdel": f"{KEY} -",
    "hget": f"{KEY} -",
    "hgetall": KEY,
    "hincrby": f"{KEY} - 1",
    "hkeys": KEY,
    "hlen": KEY,
    "hmget": f"{KEY} -",
    "hscan": f"{KEY} 0",
    "hset": f"{KEY} - -",
    "info": "memory",
    "lindex": f"{KEY} 0",
    "llen": KEY,
    "lpush": f"{KEY} -",
    "lrange": f"{KEY} 0 1",
    "lset": f"{KEY} 0 -",
    "pexpire": f"{KEY} 1",
    "rpush": f"{KEY} -",
    "set": f"{KEY} -",
    "time": "",
    "unlink": KEY,
    "zadd": f"{KEY} 1 -",
    "zcard": KEY,
    "zcount": f"{KEY} 0 1",
    "zrange": f"{KEY} 0 1",
    "zrangebyscore": f"{KEY} 0 1",
    "zrem": f"{KEY} -",
    "zscore": f"{KEY} -",
}
"""What every user calls, and with which arguments it may be shown."""

_SLEEPS: Mapping[Wake, Mapping[str, str]] = {
    "list": {"blpop": f"{KEY} 1", "client|id": "", "client|unblock": "1"},
    "poll": {"lpop": KEY},
    "expiry": {"client|id": "", "subscribe": EXPIRED},
}
"""What a user who receives calls as well, by the way it is woken. Scripts can't be told apart: all else is the same."""

_OPENS: Mapping[Wake, Mapping[str, str]] = {
    "list": {"client|setname": "bide"},
    "poll": {},
    "expiry": {"client|setname": "bide", "config|get": "notify-keyspace-events"},
}
"""What everybody calls as well to open a queue."""

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


def needed(role: Role, wake: Wake = "list") -> list[str]:
    """What a producer calls, who sends, looks, cancels and moves; or a worker, who receives as well."""
    return sorted(_samples(role, wake))


def _samples(role: Role, wake: Wake) -> dict[str, str]:
    return {**_CALLS, **_OPENS[wake], **(_SLEEPS[wake] if role == "worker" else {})}


def line(role: Role, namespace: str, *, wake: Wake = "list", database: int = 0) -> str:
    """Makes a user of this role, who sees this namespace and nothing else."""
    channel = f" &{EXPIRED}" if role == "worker" and wake == "expiry" else ""
    grants = " ".join(f"+{name}" for name in [*needed(role, wake), *(["select"] if database else [])])
    return f"ACL SETUSER bide-{role} on resetpass >CHANGE-ME resetkeys resetchannels ~{{{namespace}:*{channel} -@all {grants}"


def calls(key: str, *, wake: Wake = "list") -> list[str]:
    """What a worker calls, in the order of its rights: a line each, as ASK takes them."""
    samples = _samples("worker", wake)
    return [f"{name.replace('|', ' ')} {samples[name].replace(KEY, key)}" for name in needed("worker", wake)]


def missing_in(flags: Sequence[str], commands: str, wake: Wake = "list") -> list[str] | None:
    """What a worker lacks by what ACL GETUSER tells before 7.0; None when the rules are no plain list."""
    if "allcommands" in flags:
        return []
    first, *rules = commands.split() or [""]
    if first != "-@all" or any(rule[0] != "+" or "@" in rule for rule in rules):
        return None
    held = {rule[1:].lower() for rule in rules}
    return [name for name in needed("worker", wake) if name not in held and name.partition("|")[0] not in held]


def _finding(missing: Sequence[str] | None, wake: Wake) -> Finding:
    """What to make of the rights that a worker lacks, where that could be told."""
    if missing is None:
        return Finding("rights", "not known: Redis can't tell before 7.0 what such rules come to")
    if not missing:
        return Finding("rights", "all that a worker needs")
    names = ", ".join(missing)
    if set(missing).isdisjoint(needed("producer", wake)):
        return Finding("rights", "all that a producer needs", "warn", f"it can't receive: a worker also needs {names}")
    return Finding("rights", f"missing: {names}", "bad", "`bide doctor --acl` prints lines that grant what is needed")


def check(look: Look) -> Iterator[Finding]:
    try:
        yield _finding(_missing(look), look.namespace.address.wake)
    except theirs.NoPermissionError:
        if look.asked not in ("EVAL", "INFO"):
            raise
        yield _finding([look.asked.lower()], look.namespace.address.wake)


def _missing(look: Look) -> list[str] | None:
    wake = look.namespace.address.wake
    if look.version >= (7, 0):
        numbers = look.ask("EVAL", ASK, 0, *calls(f"{look.namespace.prefix(0)}meta", wake=wake))
        return [needed("worker", wake)[number - 1] for number in numbers]
    flat = look.ask("ACL", "GETUSER", look.ask("ACL", "WHOAMI"))
    user = {text_of(name): value for name, value in zip(flat[::2], flat[1::2], strict=False)}
    return missing_in([text_of(flag) for flag in user["flags"]], text_of(user["commands"]), wake)
