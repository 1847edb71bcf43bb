"""`bide show`: all that is stored about one message."""

from bide.cli.exits import Exit
from bide.cli.messages.which import Which
from bide.cli.output import fields
from bide.cli.output.columns import say_pairs
from bide.cli.output.out import say_json, tell
from bide.cli.output.safe import body_lines
from bide.cli.output.times import due, now_ms
from bide.cli.place import Place
from bide.types import Info


def run(place: Place, which: Which, *, as_json: bool = False) -> int:
    with place.queue() as queue:
        info = queue.get(which.id, topic=which.topic, key=which.key)
        if info is None:
            tell(f"bide: {which} is gone: it has ended, or never was.")
            which.say_if_no_id(queue)
            return Exit.FAILED
    if as_json:
        say_json(fields.message(info))
    else:
        say_pairs(_pairs(info, now_ms()))
    return Exit.OK


def _pairs(info: Info, now: int) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str | None]] = [
        ("id", info.id),
        ("topic", info.topic),
        ("state", info.state),
        ("due", due(info.due, now)),
        ("attempt", f"{info.attempt} of {info.max_attempts}"),
        ("key", info.key),
        ("priority", info.priority),
        ("leased until", None if info.lease_until is None else due(info.lease_until, now)),
        ("expires", None if info.expires is None else due(info.expires, now)),
        ("last error", info.last_error),
        *(("header", f"{name}={value}") for name, value in info.headers.items()),
    ]
    first, *rest = body_lines(info.body)
    return [*((name, value) for name, value in pairs if value is not None), ("body", first), *(("", line) for line in rest)]
