"""What an operator should know of a server: asked, never changed."""

import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import redis.exceptions as theirs

from bide.engines.base import Finding
from bide.engines.redis import rights
from bide.engines.redis.failures import LOST, refused, translated
from bide.engines.redis.server import Server
from bide.engines.redis.space import Space
from bide.errors import BideError

LIMIT = 15.0  # seconds that all questions together may take
SCANNING = 2.0  # seconds of them to look for keys
SAMPLE = 200  # keys whose size is asked
PAGE = 1_000  # keys that one SCAN looks at
SLOW = 10_000  # microseconds
HOUR = 3_600
SKEW = 1.0  # seconds


class _Look:
    """A connection that is asked one thing after the other, and what it has told of itself."""

    def __init__(self, space: Space, server: Server, connection: Any) -> None:
        self.space = space
        self.server = server
        self.asked = ""  # the latest command, for when it is refused
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
        return {_text(answer[0]): _text(answer[1]) for answer in answers if answer}

    def of_shards(self, *fields: str) -> list[list[Any]]:
        return self.ask_all([("HMGET", f"{self.space.prefix(n)}meta", *fields) for n in range(self.space.shards)])

    def microseconds(self) -> int:
        seconds, rest = self.ask("TIME")
        return int(seconds) * 1_000_000 + int(rest)

    @property
    def info(self) -> Mapping[str, str]:
        if not self._info:
            lines = _text(self.ask("INFO")).splitlines()
            self._info = dict(line.split(":", 1) for line in lines if ":" in line)
        return self._info

    def number(self, name: str) -> int:
        return int(self.info.get(name) or 0)

    @property
    def version(self) -> tuple[int, int]:
        """Of Redis, also where another server is as good as that one."""
        found = re.match(r"(\d+)\.(\d+)", self.info.get("redis_version", ""))
        return (int(found[1]), int(found[2])) if found else (0, 0)


def examine(space: Space) -> list[Finding]:
    shown = space.address.shown
    try:
        server = Server(space.address)
        connection = server.new_connection()
    except BideError as error:
        return [Finding("server", str(error), "bad")]
    look, findings = _Look(space, server, connection), []
    try:
        connection.connect()
        for name, check in CHECKS.items():
            findings += _checked(look, name, check)
    except theirs.ResponseError as error:  # a right that every connection needs
        findings.append(Finding("server", str(translated(error, shown, server.secrets)), "bad", "see `bide doctor --acl`"))
    except LOST as error:
        if refused(error):
            told = str(translated(error, shown, server.secrets))
        else:
            told = f"{shown} can't be reached: {server.told(error)}. Is it running, and let in?"
        findings.append(Finding("server", told, "bad", "nothing more can be told"))
    finally:
        server.drop(connection)
    return findings


def _checked(look: _Look, name: str, check: "Check") -> Iterator[Finding]:
    """What a check finds; what the server refuses to tell is a finding too."""
    try:
        yield from check(look)
    except theirs.ResponseError as error:
        yield Finding(name, f"not known: {_refusal(look, error)}")


def _refusal(look: _Look, error: BaseException) -> str:
    text = look.server.told(error)
    if isinstance(error, theirs.NoPermissionError) or "NOPERM" in text or "no permissions" in text:
        return f"this user may not call {look.asked}"
    if "unknown command" in text or "unknown subcommand" in text.lower():
        return f"this server has no {look.asked}"
    return f"{look.asked} failed: {text}"


def _server(look: _Look) -> Iterator[Finding]:
    name, own = "Redis", look.info.get("redis_version", "of an unknown version")
    for other in ("valkey", "dragonfly", "keydb"):
        if f"{other}_version" in look.info or look.info.get("server_name") == other:
            name, own = other.capitalize(), f"{look.info.get(f'{other}_version', '')} (as Redis {own})".lstrip()
    value = f"{name} {own} at {look.space.address.shown}"
    if look.version < (6, 2):
        yield Finding("server", value, "bad", "bide needs Redis 6.2 or newer")
    elif look.version < (7, 0):
        advice = "before 7.0 a right that is missing is noticed in the middle of a script, not before it: update when you can"
        yield _warn("server", value, advice)
    else:
        yield Finding("server", value)


def _mode(look: _Look) -> Iterator[Finding]:
    mode = look.info.get("redis_mode", "standalone")
    advice = {
        "cluster": "Redis Cluster is not in this release: name a single server",
        "sentinel": "this one only watches servers: name the server, or give client= of a Sentinel",
    }.get(mode, "")
    yield Finding("mode", mode, "bad" if advice else "ok", advice)
    note = look.space.address.tls_note
    if note or look.space.address.reach.scheme == "rediss":
        yield _warn("tls", "weak" if note else "on", note, when=bool(note))


def _rights(look: _Look) -> Iterator[Finding]:
    try:
        yield rights.finding(_missing(look))
    except theirs.NoPermissionError:
        if look.asked not in ("EVAL", "INFO"):
            raise
        yield rights.finding([look.asked.lower()])


def _missing(look: _Look) -> list[str] | None:
    if look.version >= (7, 0):
        numbers = look.ask("EVAL", rights.ASK, 0, *rights.calls(f"{look.space.prefix(0)}meta"))
        return [rights.RIGHTS["worker"][number - 1] for number in numbers]
    flat = look.ask("ACL", "GETUSER", look.ask("ACL", "WHOAMI"))
    user = {_text(name): value for name, value in zip(flat[::2], flat[1::2], strict=False)}
    return rights.missing_in([_text(flag) for flag in user["flags"]], _text(user["commands"]))


def _layout(look: _Look) -> Iterator[Finding]:
    layouts = {_text(layout) for [layout] in look.of_shards("layout") if layout is not None}
    others = sorted(layouts - {"1"})
    if others:
        advice = "another release of bide made it: use that one, or another namespace"
        yield Finding("layout", ", ".join(others), "bad", advice)
    else:
        yield Finding("layout", "1" if layouts else "nothing is there yet: it is made on first use")


def _memory(look: _Look) -> Iterator[Finding]:
    used, most = look.number("used_memory"), look.number("maxmemory")
    if most:
        left = max(0, most - used)
        value, advice = f"{used:,} bytes used, {left:,} left of maxmemory", "nearly full: then it takes no more messages"
        yield _warn("memory", value, advice, when=left < most / 10)
    else:
        advice = "it ends when the machine's memory does, and the server with it: set maxmemory"
        yield _warn("memory", f"{used:,} bytes used, maxmemory 0", advice)


def _eviction(look: _Look) -> Iterator[Finding]:
    policy = look.info.get("maxmemory_policy", "noeviction")
    if policy == "noeviction":
        yield Finding("eviction", policy)
    elif look.space.address.allow_eviction:
        yield Finding("eviction", f"{policy}, as allow_eviction=1 allows: it may lose messages")
    else:
        yield Finding("eviction", policy, "bad", "it drops messages when it is full: set maxmemory-policy noeviction")


SYNCED = {
    "always": "synced with each command: a crash loses nothing",
    "everysec": "synced once a second: a crash may lose about a second",
    "no": "synced when the system likes: a crash of the machine may lose half a minute, or more",
}


def _persistence(look: _Look) -> Iterator[Finding]:
    try:
        config, unknown = look.config("appendfsync", "save"), ""
    except theirs.ResponseError as error:
        config, unknown = {}, f"can't be told, as {_refusal(look, error)}"
    advice = "set appendonly yes if messages are to outlive a crash"
    if look.info.get("aof_enabled") == "1":
        synced = SYNCED.get(config.get("appendfsync", ""), f"how often it is synced {unknown or 'is not known'}")
        lax = config.get("appendfsync") == "no"
        yield _warn("persistence", f"an append-only file, {synced}", "set appendfsync everysec, or always", when=lax)
    elif unknown or config.get("save"):
        ago = look.microseconds() // 1_000_000 - look.number("rdb_last_save_time")
        lost = f"a crash loses all since the last one, {ago:,} s ago ({look.number('rdb_changes_since_last_save'):,} changes)"
        yield _warn("persistence", f"snapshots only{', and how often ' + unknown if unknown else ''}: {lost}", advice)
    else:
        yield _warn("persistence", "none: a crash or a restart loses everything", advice)
    for field in ("aof_last_write_status", "rdb_last_bgsave_status"):
        if look.info.get(field, "ok") != "ok":
            yield Finding("last save", "failed", "bad", f"{field} is not ok: the server's log says why; it may refuse to write")


def _replicas(look: _Look) -> Iterator[Finding]:
    count = look.number("connected_slaves")
    if look.info.get("role") == "slave":
        yield Finding("replicas", "this one is a replica", "bad", "it takes no messages: name its master")
    elif count and "min_slaves_good_slaves" not in look.info:  # told only where min-replicas-to-write is set
        advice = "a master that lost the others goes on taking messages that are lost in the end: set it to 1"
        yield _warn("replicas", f"{count}, min-replicas-to-write 0", advice)
    else:
        yield Finding("replicas", f"{count}")


def _clock(look: _Look) -> Iterator[Finding]:
    before = time.time()
    theirs_now = look.microseconds() / 1_000_000
    after = time.time()
    skew, margin = theirs_now - (before + after) / 2, (after - before) / 2
    value = f"{abs(skew):,.3f} s {'ahead of' if skew > 0 else 'behind'} this machine's, within {margin:.3f} s"
    yield _warn("clock", value, "the server's clock decides what is due: set both by NTP", when=abs(skew) - margin > SKEW)


def _engine_time(look: _Look) -> Iterator[Finding]:
    marks = [int(mark) for [mark] in look.of_shards("mark") if mark is not None]
    ahead = (max(marks, default=0) - look.microseconds()) / 1_000_000
    if ahead > 0:
        advice = "somebody set the clock back: until it has caught up, time goes at half its speed and messages come late"
        yield _warn("engine time", f"{ahead:,.3f} s ahead of the server's clock", advice)
    else:
        yield Finding("engine time", "with the server's clock")


def _slow(look: _Look) -> Iterator[Finding]:
    entries, ours = look.ask("SLOWLOG", "GET", 1_000), look.space.prefix(0).partition(":")[0].encode()
    since = look.microseconds() // 1_000_000 - HOUR
    taken = [
        entry[2] / 1_000
        for entry in entries
        if entry[1] >= since and entry[2] > SLOW and entry[3][0].upper() in (b"EVAL", b"EVALSHA")
        and entry[3][3:] and entry[3][3].startswith(ours + b":")
    ]  # fmt: skip
    if taken:
        value = f"{len(taken):,} over {SLOW // 1_000} ms in the last hour, the longest {max(taken):,.0f} ms"
        yield _warn("slow scripts", value, "nothing else is done meanwhile: is the server's machine busy?")
    else:
        yield Finding("slow scripts", f"none over {SLOW // 1_000} ms in the last hour, as far as SLOWLOG goes back")


def _messages(look: _Look) -> Iterator[Finding]:
    kept = 0
    for shard in range(look.space.shards):
        prefix = look.space.prefix(shard)
        numbers = look.ask("HVALS", prefix + "topics")
        kept += sum(int(live or 0) for live in look.ask_all([("HGET", prefix + _text(n) + ":h", "live") for n in numbers]))
    if not kept:
        yield Finding("messages", "none")
        return
    keys, share = _keys(look)
    sample = random.sample(keys, min(SAMPLE, len(keys)))
    sizes = [size for size in look.ask_all([("MEMORY", "USAGE", key) for key in sample]) if size is not None]
    if sizes:
        total = sum(sizes) / len(sizes) * len(keys) / share
        yield Finding("messages", f"{kept:,}, about {total / kept:,.0f} bytes each with all that belongs to them")


def _keys(look: _Look) -> tuple[list[bytes], float]:
    """Keys of the namespace, and about which share of them these are."""
    pattern = look.space.prefix(0).partition(":")[0] + ":*"
    everything, end = max(1, look.ask("DBSIZE")), time.monotonic() + SCANNING
    found: list[bytes] = []
    cursor, pages = b"0", 0
    while time.monotonic() < end:
        cursor, page = look.ask("SCAN", cursor, "MATCH", pattern, "COUNT", PAGE)
        found += page
        pages += 1
        if cursor == b"0":
            return found, 1.0
    return found, min(1.0, pages * PAGE / everything)


def _connections(look: _Look) -> Iterator[Finding]:
    lines = _text(look.ask("CLIENT", "LIST")).splitlines()
    named = f" name={look.space.address.client_name} "
    ours = sum(named in line for line in lines) - 1  # this one is no other
    yield Finding("connections", f"{ours:,} others named {look.space.address.client_name}, {len(lines):,} in all")


def _warn(name: str, value: str, advice: str, *, when: bool = True) -> Finding:
    return Finding(name, value, "warn", advice) if when else Finding(name, value)


def _name_of(words: Sequence[str | bytes | int]) -> str:
    two = words[0] in ("ACL", "CLIENT", "CONFIG", "MEMORY", "SLOWLOG")
    return " ".join(str(word) for word in words[: 1 + two])


def _text(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


Check = Callable[[_Look], Iterator[Finding]]
CHECKS: Mapping[str, Check] = {
    "server": _server,
    "mode": _mode,
    "rights": _rights,
    "layout": _layout,
    "memory": _memory,
    "eviction": _eviction,
    "persistence": _persistence,
    "replicas": _replicas,
    "clock": _clock,
    "engine time": _engine_time,
    "slow scripts": _slow,
    "messages": _messages,
    "connections": _connections,
}
