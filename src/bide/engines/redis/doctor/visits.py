"""Visits to servers, several at once: each is asked about itself on a connection of its own, and nothing is changed."""

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import msgspec
import redis.exceptions as theirs

from bide.engines.base import Finding
from bide.engines.redis.client import Endpoint
from bide.engines.redis.failures import refused as not_let_in
from bide.engines.redis.failures import translated, what_to_check
from bide.engines.redis.namespace import Namespace, ServerClock
from bide.engines.redis.server import Server
from bide.engines.redis.topology import ServerPlace
from bide.errors import BideError

SCANNING = 2.0  # seconds of them to look for keys
PAGE = 1_000  # keys that one SCAN looks at
LIMIT = 15.0  # seconds for all visits together
TIMEOUT = 5.0  # seconds for an answer, also where the URL has more
BRIEF = 2.5  # seconds, where several servers are visited, some only after others
MOST = 64  # visits at a time


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


LOST = (theirs.RedisError, OSError, EOFError)  # a connection with which nothing more can be asked, unless the server answered

Words = Sequence[str | bytes | int]


class Stop(NamedTuple):
    """A server to visit, and what of the namespace is there."""

    address: Endpoint
    place: ServerPlace | None = None  # of one of several servers
    shards: Sequence[int] = ()

    @property
    def where(self) -> str:
        return self.address.shown if self.place is None else str(self.place)


class Refusal(str):
    """In place of an answer: why there is none. `error`: in the words of the server."""

    error: str = ""


class ServerTold:
    """What a server has told."""

    def __init__(self, where: str) -> None:
        self.where: str = where
        self.findings: list[Finding] = []
        self.lost: Finding | None = None  # why it could tell no more
        self.refused: bool = False  # the user or the password
        self.info: Mapping[str, str] = {}
        self.answers: dict[str, Any] = {}

    def number(self, name: str) -> int:
        return int(self.info.get(name) or 0)


class Visits:
    """All visits of one examination."""

    def __init__(self, namespace: Namespace, timeout: float = TIMEOUT) -> None:
        self.namespace: Namespace = namespace
        self._timeout = timeout
        self._end = time.monotonic() + LIMIT

    def all(self, stops: Sequence[Stop], do: Callable[[Look, ServerTold], None]) -> list[ServerTold]:
        """What each of them told, as far as it was reached."""
        if len(stops) < 2:
            return [self._visit(stop, do) for stop in stops]
        with ThreadPoolExecutor(min(MOST, len(stops))) as threads:
            return list(threads.map(lambda stop: self._visit(stop, do), stops))

    def _visit(self, stop: Stop, do: Callable[[Look, ServerTold], None]) -> ServerTold:
        told, given = ServerTold(stop.where), stop.address
        most = min(self._timeout, max(0.1, self._end - time.monotonic()))
        quick = {"timeout": min(given.timeout, most), "connect_timeout": min(given.connect_timeout, most)}
        try:
            server = Server(msgspec.structs.replace(given, **quick), ServerClock())
            connection = server.new_connection(stop.place)
        except BideError as error:
            told.lost = Finding("server", str(error), "bad")
            return told
        try:
            connection.connect()
            look = Look(
                self.namespace, server, connection, stop.shards, str(stop.place or ""), self._end - server.address.timeout
            )
            do(look, told)
        except theirs.ResponseError as error:  # a right that every connection needs
            why = str(translated(error, stop.where, server.secrets))
            told.lost = Finding("server", why, "bad", "see `bide doctor --acl`")
        except LOST as error:
            text = server.told(error)
            lost = f"{stop.where} can't be reached: {text}. {what_to_check(server.shown, text)}"
            told.refused = not_let_in(error)
            why = str(translated(error, stop.where, server.secrets)) if told.refused else lost
            told.lost = Finding("server", why, "bad", "nothing more can be told")
        finally:
            server.drop(connection)
        return told


def answers_to(**questions: Words) -> Callable[[Look, ServerTold], None]:
    """A visit that asks these. What the server refuses to tell is a Refusal."""

    def do(look: Look, told: ServerTold) -> None:
        for name, words in questions.items():
            try:
                told.answers[name] = look.ask(*words)
            except theirs.ResponseError as error:
                refused = Refusal(refusal(look, error))
                refused.error = look.server.told(error)
                told.answers[name] = refused

    return do


def fields(answer: Sequence[Any]) -> dict[str, str]:
    """Of an answer that is names and values by turns."""
    words = [text_of(each) for each in answer]
    return dict(zip(words[::2], words[1::2], strict=False))


def merged(found: Iterable[tuple[str, Finding]]) -> list[Finding]:
    """Equal findings of several servers as one, which names them unless it holds for all. In the order of the names."""
    servers: dict[Finding, list[str]] = {}
    everywhere = set[str]()
    for where, finding in found:
        servers.setdefault(finding, []).append(where)
        everywhere.add(where)
    order = list(dict.fromkeys(finding.name for finding in servers))
    return [
        each if set(servers[each]) == everywhere else msgspec.structs.replace(each, where=", ".join(servers[each]))
        for each in sorted(servers, key=lambda each: order.index(each.name))
    ]
