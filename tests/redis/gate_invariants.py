"""What is true of the keys of gates between any two scripts: nothing is left of an empty one, and the agenda forgets nobody."""

import re
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from tests.redis.layout import Shard

OF_GATE = re.compile(r"(gate|inside|line|again|asking|kept):(.*)", re.DOTALL)
HEAD, INSTANT = 42, 6  # bytes


def is_of_gate(name: str) -> bool:
    return OF_GATE.fullmatch(name) is not None


def of_gates(shard: Shard) -> Iterator[str]:
    agenda = {member.decode(): int(score) for member, score in shard.own.get("agenda", [])}
    names = {found[2] for name in shard.own if (found := OF_GATE.fullmatch(name)) and found[1] != "kept"}
    rates: Mapping[bytes, bytes] = shard.own.get("rates", {})
    due = {f"g{name}" for name in names} | {f"r{name.decode()}" for name in rates}
    if due != set(agenda):
        yield f"the agenda has {sorted(agenda)}, and there are {sorted(due)}"
    for name in names:
        yield from _of_gate(shard, name, agenda.get(f"g{name}", 0))
    for rate, text in rates.items():
        yield from _of_rate(rate, text, agenda.get(f"r{rate.decode()}", 0))
    kept = {name.partition(":")[2].encode() for name in shard.own if name.startswith("kept:")}
    yield from (f"instants are kept of {name!r}, which is no rate" for name in kept - set(rates))


def _of_gate(shard: Shard, name: str, planned: int) -> Iterator[str]:
    gate: Mapping[bytes, bytes] = shard.own.get(f"gate:{name}", {})
    inside, line, again = (_scores(shard, f"{kind}:{name}") for kind in ("inside", "line", "again"))
    holders = {each for each in inside if each[:1] == b"h"}
    called = {each[1:] for each in inside if each[:1] == b"c"}
    asking = _scores(shard, f"asking:{name}")
    if not set(asking) <= set(line) or (asking and gate.get(b"asking") != b"1"):
        yield f"gate {name} waits for {sorted(asking)} to ask again, and has {sorted(line)} in line"
    if set(gate) - {b"asking"} != holders | {b"places"}:
        yield f"gate {name} has tokens of {sorted(gate)}, and {sorted(holders)} are inside"
    if called != set(again) or called & set(line):
        yield f"gate {name} calls {sorted(called)}, and has {sorted(again)} to name again, {sorted(line)} in line"
    if len(set(line.values())) != len(line):
        yield f"gate {name} does not know who of its line was first"
    room = line and len(inside) < int(gate.get(b"places", 0))
    soonest = min([*inside.values(), *again.values()], default=planned)
    if planned != soonest and not room:
        yield f"gate {name} is looked at {planned}, and at {soonest} there is something to do"


def _of_rate(name: bytes, text: bytes, planned: int) -> Iterator[str]:
    over = 0
    while text:  # what has begun, and what would have
        _, window, last, _, _, until = (int.from_bytes(text[i : i + 7], "big") for i in range(0, HEAD, 7))
        rest = HEAD + 1 + INSTANT * text[HEAD]
        ended = [each for (each,) in struct.iter_unpack(f"{INSTANT}s", text[HEAD + 1 : rest])]
        if ended != sorted(ended) or len(ended) > 100:
            yield f"rate {name!r} has {len(ended)} groups, or not in order"
        over, text = max(over, last + window, until), text[rest:]
    if planned != over:
        yield f"rate {name!r} is over at {over}, and is looked at {planned}"


def _scores(shard: Shard, name: str) -> dict[bytes, int]:
    found: list[tuple[bytes, Any]] = shard.own.get(name, [])
    return {member: int(score) for member, score in found}
