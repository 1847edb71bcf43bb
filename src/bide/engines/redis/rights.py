"""The rights that bide needs on a server: told as lines for `redis-cli`, and asked about without trying them."""

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from bide.engines.base import Finding

Role: TypeAlias = Literal["producer", "worker"]

KEY = "KEY"  # stands for a key of ours, where a command is shown as it is called

_CALLS: Mapping[str, str] = {
    "client|setname": "bide",
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

_TO_SLEEP: Mapping[str, str] = {"blpop": f"{KEY} 1", "client|id": "", "client|unblock": "1"}

RIGHTS: Mapping[Role, Sequence[str]] = {"producer": tuple(sorted(_CALLS)), "worker": tuple(sorted({**_CALLS, **_TO_SLEEP}))}
"""Who sends, looks, cancels and moves; and who receives as well. Scripts can't be told apart, so they differ in little."""

REMARK = (
    "Put a password in place of CHANGE-ME first. Redis 7.2 and newer, and Valkey: add +client|setinfo to each line, or every connection leaves a note in ACL LOG. "
    "Older ones don't know it, and refuse the line."
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


def line(role: Role, namespace: str, *, database: int = 0) -> str:
    """Makes a user of this role, who sees this namespace and nothing else."""
    names = [*RIGHTS[role], *(["select"] if database else [])]
    grants = " ".join(f"+{name}" for name in names)
    return f"ACL SETUSER bide-{role} on >CHANGE-ME resetkeys resetchannels ~{{{namespace}:* -@all {grants}"


def calls(key: str) -> list[str]:
    """What a worker calls, in the order of its rights: a line each, as ASK takes them."""
    arguments = {**_CALLS, **_TO_SLEEP}
    return [f"{name.replace('|', ' ')} {arguments[name].replace(KEY, key)}" for name in RIGHTS["worker"]]


def missing_in(flags: Sequence[str], commands: str) -> list[str] | None:
    """What a worker lacks by what ACL GETUSER tells before 7.0; None when the rules are no plain list."""
    if "allcommands" in flags:
        return []
    first, *rules = commands.split() or [""]
    if first != "-@all" or any(rule[0] != "+" or "@" in rule for rule in rules):
        return None
    held = {rule[1:].lower() for rule in rules}
    return [name for name in RIGHTS["worker"] if name not in held and name.partition("|")[0] not in held]


def finding(missing: Sequence[str] | None) -> Finding:
    """What to make of the rights that a worker lacks, where that could be told."""
    if missing is None:
        return Finding("rights", "not known: Redis can't tell before 7.0 what such rules come to")
    if not missing:
        return Finding("rights", "all that a worker needs")
    names = ", ".join(missing)
    if set(missing).isdisjoint(RIGHTS["producer"]):
        return Finding("rights", "all that a producer needs", "warn", f"it can't receive: a worker also needs {names}")
    return Finding("rights", f"missing: {names}", "bad", "`bide doctor --acl` prints lines that grant what is needed")
