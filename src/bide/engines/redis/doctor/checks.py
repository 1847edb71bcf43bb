"""What is looked at, one check each: it tells what it found, in one line or none."""

import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence

import redis.exceptions as theirs

from bide.core.formats import plural, size, span
from bide.engines.base import Finding
from bide.engines.findings import judged
from bide.engines.redis.doctor.visits import Look, refusal, text_of
from bide.engines.redis.failures import layout_advice
from bide.engines.redis.namespace import check_events
from bide.engines.redis.protocol.encoding import LAYOUT, SPREAD
from bide.errors import ConfigError

SAMPLE = 200  # keys of a kind whose size is asked
MESSAGES = re.compile(rb":[0-9a-f]+:[bm][A-X][^:]*:[^:]*$")  # keys that hold messages, or the body of one
SLOW = 10_000  # microseconds
SKEW = 1.0  # seconds


def server(look: Look) -> Iterator[Finding]:
    name, own = "Redis", look.info.get("redis_version", "of an unknown version")
    for other in ("valkey", "dragonfly", "keydb"):
        if f"{other}_version" in look.info or look.info.get("server_name") == other:
            name, own = other.capitalize(), f"{look.info.get(f'{other}_version', '')} (as Redis {own})".lstrip()
    value = f"{name} {own}" if look.place else f"{name} {own} at {look.server.shown}"
    if look.version < (6, 2):
        yield Finding("server", value, "bad", "bide needs Redis 6.2 or newer")
    else:
        advice = "before 7.0 a right that is missing is noticed in the middle of a script, not before it: update when you can"
        yield judged("server", value, "warn", advice, when=look.version < (7, 0))


def tls(look: Look) -> Iterator[Finding]:
    note = look.namespace.address.tls_note
    if note or look.namespace.address.client.scheme == "rediss":
        yield judged("tls", "weak" if note else "on", "warn", note, when=bool(note))


def layout(look: Look) -> Iterator[Finding]:
    layouts = {text_of(layout) for [layout] in look.of_shards("layout") if layout is not None}
    others = sorted(layouts - {LAYOUT, SPREAD})
    if others:
        yield Finding("layout", ", ".join(others), "bad", layout_advice(others[0]))
    else:
        yield Finding("layout", ", ".join(sorted(layouts)) if layouts else "nothing is there yet: it is made on first use")


def memory(look: Look) -> Iterator[Finding]:
    used, most = look.number("used_memory"), look.number("maxmemory")
    if most:
        left = max(0, most - used)
        value, advice = f"{size(used)} used, {size(left)} left of maxmemory", "nearly full: then it takes no more messages"
        yield judged("memory", value, "warn", advice, when=left < most / 10)
    else:
        advice = "it ends when the machine's memory does, and the server with it: set maxmemory"
        yield Finding("memory", f"{size(used)} used, maxmemory 0", "warn", advice)


def eviction(look: Look) -> Iterator[Finding]:
    policy = look.info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction" and look.namespace.address.allow_eviction:
        yield Finding("eviction", f"{policy}, as allow_eviction=1 allows: it may lose messages")
    else:
        advice = "it drops messages when it is full: set maxmemory-policy noeviction"
        yield judged("eviction", policy, "bad", advice, when=policy != "noeviction")


def waking(look: Look) -> Iterator[Finding]:
    wake = look.namespace.address.wake
    try:
        if wake == "expiry":
            check_events(look.server.address, look.ask("CONFIG", "GET", "notify-keyspace-events"))
        yield Finding("waking", f"wake={wake}")
    except ConfigError as error:
        yield Finding("waking", f"wake={wake}", "bad", str(error))


SYNCED: Mapping[str, str] = {
    "always": "synced with each command: a crash loses nothing",
    "everysec": "synced once a second: a crash may lose about a second",
    "no": "synced when the system likes: a crash of the machine may lose half a minute, or more",
}


def persistence(look: Look) -> Iterator[Finding]:
    try:
        config, unknown = look.config("appendfsync", "save"), ""
    except theirs.ResponseError as error:
        config, unknown = {}, refusal(look, error)
    advice = "set appendonly yes if messages are to outlive a crash"
    if look.info.get("aof_enabled") == "1":
        synced = SYNCED.get(config.get("appendfsync", ""), f"and how often it is synced is not known: {unknown}")
        lax = config.get("appendfsync") == "no"
        yield judged("persistence", f"an append-only file, {synced}", "warn", "set appendfsync everysec, or always", when=lax)
    elif unknown:
        yield Finding(
            "persistence", f"no append-only file, and whether snapshots are made is not known: {unknown}", "warn", advice
        )
    elif config.get("save"):
        ago = look.microseconds() // 1_000_000 - look.number("rdb_last_save_time")
        lost = (
            f"all since the last one, {span(ago) or '0s'} ago ({plural(look.number('rdb_changes_since_last_save'), 'change')})"
        )
        yield Finding("persistence", f"snapshots only: a crash loses {lost}", "warn", advice)
    else:
        yield Finding("persistence", "none: a crash or a restart loses everything", "warn", advice)
    for field in ("aof_last_write_status", "rdb_last_bgsave_status"):
        if look.info.get(field, "ok") != "ok":
            yield Finding("last save", "failed", "bad", f"{field} is not ok: the server's log says why; it may refuse to write")


def clock(look: Look) -> Iterator[Finding]:
    before = time.time()
    theirs_now = look.microseconds() / 1_000_000
    after = time.time()
    skew, margin = theirs_now - (before + after) / 2, (after - before) / 2
    value = f"{abs(skew):,.3f} s {'ahead of' if skew > 0 else 'behind'} this machine's, within {margin:.3f} s"
    yield judged(
        "clock", value, "warn", "the server's clock decides what is due: set both by NTP", when=abs(skew) - margin > SKEW
    )


def engine_time(look: Look) -> Iterator[Finding]:
    marks = [int(mark) for [mark] in look.of_shards("mark") if mark is not None]
    ahead = (max(marks, default=0) - look.microseconds()) / 1_000_000
    advice = "somebody set the clock back: until it has caught up, time goes at half its speed and messages come late"
    value = f"{ahead:,.3f} s ahead of the server's clock" if ahead > 0 else "with the server's clock"
    yield judged("engine time", value, "warn", advice, when=ahead > 0)


def slow(look: Look) -> Iterator[Finding]:
    entries, ours = look.ask("SLOWLOG", "GET", 1_000), look.namespace.prefix(0).partition(":")[0].encode()
    since = look.microseconds() // 1_000_000 - 3_600
    taken = [
        entry[2] / 1_000
        for entry in entries
        if entry[1] >= since and entry[2] > SLOW and entry[3][0].upper() in (b"EVAL", b"EVALSHA")
        and entry[3][3:] and entry[3][3].startswith(ours + b":")
    ]  # fmt: skip
    if taken:
        value = f"{len(taken):,} over {SLOW // 1_000} ms in the last hour, the longest {max(taken):,.0f} ms"
        yield Finding("slow scripts", value, "warn", "nothing else is done meanwhile: is the server's machine busy?")
    else:
        yield Finding("slow scripts", f"none over {SLOW // 1_000} ms in the last hour, as far as SLOWLOG goes back")


def messages(look: Look) -> Iterator[Finding]:
    kept, each = 0, ""
    for prefix in map(look.namespace.prefix, look.shards):
        numbers = [known.partition(b"@")[0] for known in look.ask("HGETALL", prefix + "topics")[1::2]]
        kept += sum(int(live or 0) for live in look.ask_all([("HGET", prefix + text_of(n) + ":h", "live") for n in numbers]))
    if kept:
        try:
            each = f", about {size(_bytes_of_all(look) / kept)} each with all that belongs to them"
        except theirs.ResponseError as error:
            each = f"; how large is not known: {refusal(look, error)}"
    yield Finding("messages", f"{kept:,}{each}")


def _bytes_of_all(look: Look) -> float:
    """Lists and bodies are very many, and alike. Each of the other keys may be as large as hundreds of them together."""
    keys, share = look.keys()
    kinds: dict[bool, list[bytes]] = {True: [], False: []}
    for key in keys:
        kinds[MESSAGES.search(key) is not None].append(key)
    return sum(_bytes_of(look, each) for each in kinds.values()) / share


def _bytes_of(look: Look, keys: Sequence[bytes]) -> float:
    sample = random.sample(keys, min(SAMPLE, len(keys)))
    sizes = [int(size or 0) for size in look.ask_all([("MEMORY", "USAGE", key) for key in sample])]
    return sum(sizes) / max(1, len(sizes)) * len(keys)


def connections(look: Look) -> Iterator[Finding]:
    lines = text_of(look.ask("CLIENT", "LIST")).splitlines()
    named = f" name={look.namespace.address.client_name} "
    if look.namespace.address.wake == "poll":  # then they have no names
        yield Finding("connections", f"{len(lines):,} in all")
        return
    ours = sum(named in line for line in lines) - 1  # this one is no other
    yield Finding("connections", f"{ours:,} named {look.namespace.address.client_name} beside this one, {len(lines):,} in all")
