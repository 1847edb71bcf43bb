"""A program in another language, as far as the server can tell: it sends by the script that `bide script send` prints."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from hashlib import sha1
from typing import Any

import msgspec
import redis
import redis.exceptions as theirs

from bide.core.options import PRIORITIES
from bide.engines.base import NewMessage
from bide.engines.redis.protocol.encoding import name_of
from bide.engines.redis.protocol.sends import within
from bide.engines.redis.script import send_script
from bide.errors import BadMessage, BadTime
from bide.types import Sent

OPTIONS = "shards = true,\n}"
WITH_TIME = send_script().replace(OPTIONS, f"now = true, within = true, {OPTIONS}")
"""With what is no option for others, as it could push the engine's time."""
STEPS = 6  # shards that may be asked for one message
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Foreign:
    """It begins at shard 0, and goes where it is told to."""

    def __init__(self, client: Any, namespace: str = "bide", script: str = "") -> None:
        self.client = client
        self.script = script or send_script()
        self.hash = sha1(self.script.encode()).hexdigest()
        self.first = (f"{{{namespace}:0}}:meta", f"{{{namespace}:0}}:-")
        self.calls = 0  # of the last send

    def call(self, keys: Sequence[str], *args: Any) -> list[Any]:
        try:
            return self.client.evalsha(self.hash, len(keys), *keys, *args)  # type: ignore[no-any-return]
        except theirs.NoScriptError:
            return self.client.eval(self.script, len(keys), *keys, *args)  # type: ignore[no-any-return]

    def send(self, topic: str, *args: Any) -> list[Any]:
        keys: Sequence[str] = self.first
        for self.calls in range(1, STEPS + 1):
            try:
                return self.call(keys, topic, *args)
            except theirs.ResponseError as error:
                other = re.match(r"OTHERSHARD (\S+) (\S+) ", str(error))
                if not other:
                    raise
                keys = other.groups()
        raise AssertionError("it is sent from shard to shard")


def arguments(new: NewMessage, now: int | None) -> list[Any]:
    told: dict[str, Any] = {
        "format": "json" if new.if_exists == "merge" else "bytes",
        "max_body": new.largest if new.if_exists == "merge" else 2**28,
        "delay": None if new.at is not None else f"{new.delay}ms",
        "at": None if new.at is None else (EPOCH + timedelta(milliseconds=new.at)).isoformat(timespec="milliseconds"),
        "key": new.key,
        "if_exists": new.if_exists,
        "priority": PRIORITIES[new.level],
        "expires_in": None if new.expires_in is None else f"{new.expires_in}ms",
        "max_attempts": new.max_attempts,
        "headers": msgspec.json.encode(dict(new.headers)),
        "operation": new.operation,
        "unique_for": None if new.unique_for is None else f"{new.unique_for}ms",
        "max_wait": None if new.max_wait is None else f"{new.max_wait}ms",
        "within": None if new.within is None else within(name_of(new.within)),
        "now": now,
    }
    given = [(name, value) for name, value in told.items() if value is not None]
    body = new.body[1:-1] if new.if_exists == "merge" else new.body  # the script makes a list of it
    return [new.topic, body, *(part for pair in given for part in pair)]


def sent(foreign: Foreign, new: NewMessage, now: int | None) -> Sent:
    """As an engine's put answers."""
    try:
        id, due, outcome = foreign.send(*arguments(new, now))
    except theirs.ResponseError as error:
        if held := re.match(r"EXISTS (\S+) (\d+) ", str(error)):
            return Sent(held[1], new.topic, int(held[2]), "exists")
        if str(error).startswith("BADOPTION"):
            raise (BadTime if "hundred years" in str(error) else BadMessage)(str(error)) from None
        raise
    return Sent(id.decode(), new.topic, due, outcome.decode())


def client_of(url: str) -> Any:
    place = url.partition("?")[0]
    if place.startswith("redis+cluster://"):
        host, _, port = place.partition("://")[2].split(",")[0].partition(":")
        return redis.RedisCluster(host=host, port=int(port))
    return redis.Redis.from_url(place)
