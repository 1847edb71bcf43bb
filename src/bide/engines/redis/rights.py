"""What bide must be allowed to ask of a server: as lines for `redis-cli`, as one question, and question by question."""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import redis.exceptions as theirs

from bide.engines.base import Finding
from bide.engines.redis.query import Wake
from bide.engines.redis.server import Server
from bide.engines.redis.space import Space

Role: TypeAlias = Literal["producer", "worker"]

LIMIT = 15.0  # seconds that all questions of one look may take
ROLES: Sequence[Role] = ("producer", "worker")
SCANNING = 2.0  # seconds of them to look for keys
PAGE = 1_000  # keys that one SCAN looks at
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


class Look:
    """A connection that is asked one thing after the other, and what it has told of itself."""

    def __init__(self, space: Space, server: Server, connection: Any) -> None:
        self.space: Space = space
        self.server: Server = server
        self.asked: str = ""  # the latest command, for when it is refused
        self._info: Mapping[str, str] = {}
        self._connection = connection
        self._end = time.monotonic() + LIMIT

    def ask(self, *words: str | bytes | int) -> Any:
        return self.ask_all([words])[0]

    def ask_all(self, commands: Sequence[Sequence[str | bytes | int]]) -> list[Any]:
        """All in one go. Raises ResponseError when the server refuses any of them."""
        for words in commands:
            self.asked = _name_of(words)
            self._connection.send_command(*words, check_health=False)
        answers, error = [], None
        for _ in commands:
            if time.monotonic() > self._end:
                raise theirs.TimeoutError(f"the questions took longer than {LIMIT:.0f} seconds")
            try:
                answers.append(self._connection.read_response())
            except theirs.ResponseError as refusal:
                error = refusal
        if error is not None:
            raise error
        return answers

    def config(self, *names: str) -> dict[str, str]:
        answers = self.ask_all([("CONFIG", "GET", name) for name in names])  # before 7.0 it takes one name
        return {text_of(answer[0]): text_of(answer[1]) for answer in answers if answer}

    def of_shards(self, *fields: str) -> list[list[Any]]:
        return self.ask_all([("HMGET", f"{self.space.prefix(n)}meta", *fields) for n in range(self.space.shards)])

    def microseconds(self) -> int:
        seconds, rest = self.ask("TIME")
        return int(seconds) * 1_000_000 + int(rest)

    @property
    def info(self) -> Mapping[str, str]:
        if not self._info:
            lines = text_of(self.ask("INFO")).splitlines()
            self._info = dict(line.split(":", 1) for line in lines if ":" in line)
        return self._info

    def keys(self) -> tuple[list[bytes], float]:
        """Keys of the namespace, and about which share of them these are."""
        pattern = self.space.prefix(0).partition(":")[0] + ":*"
        everything, end = max(1, self.ask("DBSIZE")), time.monotonic() + SCANNING
        found: list[bytes] = []
        cursor, pages = b"0", 0
        while time.monotonic() < end:
            cursor, page = self.ask("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE)
            found += page
            pages += 1
            if cursor == b"0":
                return found, 1.0
        return found, min(1.0, pages * PAGE / everything)

    def number(self, name: str) -> int:
        return int(self.info.get(name) or 0)

    @property
    def version(self) -> tuple[int, int]:
        """Of Redis, also where another server is as good as that one."""
        found = re.match(r"(\d+)\.(\d+)", self.info.get("redis_version", ""))
        return (int(found[1]), int(found[2])) if found else (0, 0)


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
        yield _finding(_missing(look), look.space.address.wake)
    except theirs.NoPermissionError:
        if look.asked not in ("EVAL", "INFO"):
            raise
        yield _finding([look.asked.lower()], look.space.address.wake)


def _missing(look: Look) -> list[str] | None:
    wake = look.space.address.wake
    if look.version >= (7, 0):
        numbers = look.ask("EVAL", ASK, 0, *calls(f"{look.space.prefix(0)}meta", wake=wake))
        return [needed("worker", wake)[number - 1] for number in numbers]
    flat = look.ask("ACL", "GETUSER", look.ask("ACL", "WHOAMI"))
    user = {text_of(name): value for name, value in zip(flat[::2], flat[1::2], strict=False)}
    return missing_in([text_of(flag) for flag in user["flags"]], text_of(user["commands"]), wake)


def refusal(look: Look, error: BaseException) -> str:
    text = look.server.told(error)
    if isinstance(error, theirs.NoPermissionError) or "NOPERM" in text or "no permissions" in text:
        return f"this user may not call {look.asked}"
    if "unknown command" in text or "unknown subcommand" in text.lower():
        return f"this server has no {look.asked}"
    return f"{look.asked} failed: {text}"


def _name_of(words: Sequence[str | bytes | int]) -> str:
    two = words[0] in ("ACL", "CLIENT", "CONFIG", "MEMORY", "SLOWLOG")
    return " ".join(str(word) for word in words[: 1 + two])


def text_of(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
