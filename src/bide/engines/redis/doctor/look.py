"""A connection that asks a server about itself, and changes nothing."""

import math
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

import redis.exceptions as theirs

from bide.engines.redis.namespace import Namespace
from bide.engines.redis.server import Server

SCANNING = 2.0  # seconds of them to look for keys
PAGE = 1_000  # keys that one SCAN looks at


class Look:
    """A connection that is asked one thing after the other, and what it has told of itself."""

    def __init__(
        self,
        namespace: Namespace,
        server: Server,
        connection: Any,
        shards: Sequence[int] = (0,),
        place: str = "",
        end: float = math.inf,
        info: Mapping[str, str] | None = None,
    ) -> None:
        """`shards`: those that are there. `place`: of one of several servers. `end`: no question is asked after it.

        `info`: what it has told already.
        """
        self.namespace: Namespace = namespace
        self.shards: Sequence[int] = shards
        self.place: str = place
        self.server: Server = server
        self.asked: str = ""  # the latest command, for when it is refused
        self._info: Mapping[str, str] = info or {}
        self._connection = connection
        self._end = end

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
                raise theirs.TimeoutError("the questions took too long")
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
        return self.ask_all([("HMGET", f"{self.namespace.prefix(shard)}meta", *fields) for shard in self.shards])

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
        pattern = self.namespace.prefix(0).partition(":")[0] + ":*"
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


def refusal(look: Look, error: BaseException) -> str:
    text = look.server.told(error)
    if isinstance(error, theirs.NoPermissionError) or "NOPERM" in text or "no permissions" in text:
        return f"this user may not call {look.asked}"
    if "unknown command" in text or "unknown subcommand" in text.lower():
        return f"this server has no {look.asked}"
    return f"{look.asked} failed: {text}"


def _name_of(words: Sequence[str | bytes | int]) -> str:
    two = words[0] in ("ACL", "CLIENT", "CLUSTER", "CONFIG", "MEMORY", "SENTINEL", "SLOWLOG")
    return " ".join(str(word) for word in words[: 1 + two])


def text_of(value: bytes | str) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value
