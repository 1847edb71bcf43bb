"""The Redis of an old system: how it is reached, the scripts that run there, and the rights that these need."""

import functools
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any

import redis
import redis.exceptions as theirs
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from bide.engines.base import Settings
from bide.engines.redis.client import Endpoint, sentinel_address
from bide.engines.redis.failures import LOST, refused, translated
from bide.engines.redis.location import read
from bide.errors import BideError, ConfigError, EngineError, Unavailable

RIGHTS = "+@read +@write -@dangerous +eval +time +select +publish +client|setname +client|list"
"""The commands of all sources, as ACL SETUSER takes them. docs/adopt.md has the same line."""
CLUSTER = "+cluster|slots +command"  # what the driver asks a Cluster
_NAMED = re.compile(r"'([\w|]+)' command")
_KEY = re.compile(r"access the '(.+)' key")
_KEYS = re.compile(r"\bkeys?\b")
_CHANNELS = re.compile(r"\bchannels?\b")
_LINE = re.compile(r"on @user_script:(\d+)")
_SCRIPT = re.compile(r"^-- script: (\w+)\..*\n", re.MULTILINE)
_WORDS = re.compile(r"'([A-Z]+)'")


def lacks(text: str) -> bool:
    """Whether this error tells of a right that is missing. Servers before 7.2 tell it of a script without NOPERM."""
    return "NOPERM" in text or "has no permissions" in text or "executing the script can't" in text


def lacking(shown: str, text: str, script: str) -> str:
    """What to tell about an error that tells of a right. `script`: the text of the script that had it, or nothing."""
    needed = f"{RIGHTS} {CLUSTER}" if "+cluster:" in shown else RIGHTS
    return (
        f"The user at {shown} lacks a right{_refused(text, script)}. Let an administrator of that Redis run ACL SETUSER, with "
        f"the user's name and: {needed}. The user also needs the keys of the source (as ~delayed), and the key beside them (as "
        "~{delayed}:bide-adopt): the documentation lists, under Adopt waiting messages, Rights in Redis, both for each source."
    )


def _refused(text: str, script: str) -> str:
    if named := _NAMED.search(text):
        return f": Redis refused the command {named[1].upper()}"
    if found := _KEY.search(text):
        return f": Redis refused the key {found[1]}"
    if _KEYS.search(text):
        return ": Redis refused a key"
    if _CHANNELS.search(text):
        return ": Redis refused a channel of Pub/Sub"
    place, lines = _LINE.search(text), script.splitlines()  # Redis 6 and 7.0 name the line in place of the command
    if place and 0 < int(place[1]) <= len(lines) and (words := _WORDS.findall(lines[int(place[1]) - 1])):
        return f": Redis refused the command {' or '.join(words)}"
    return ""


@functools.cache
def scripts() -> Mapping[str, str]:
    """All of this folder, by name: a file has those of one source, each behind a line `-- script: name. …`."""
    paths = (path for path in files(__package__).iterdir() if path.name.endswith(".lua"))
    _, *named = _SCRIPT.split("".join(path.read_text(encoding="utf-8") for path in paths))
    return dict(zip(named[::2], named[1::2], strict=True))


class SourceServer:
    """Sends each command once: whether one was done whose answer is lost, the source finds out by looking again."""

    def __init__(self, url: str) -> None:
        self._address: Endpoint = read(Settings(url=url))
        self.shown: str = self._address.shown
        self.database: int = self._address.db
        self._client: Any = None

    def call(self, *command: Any, **options: Any) -> Any:
        """The answer to a command. Raises a BideError."""
        try:
            if self._client is None:
                self._client = _client(self._address)
            return self._client.execute_command(*command, **options)
        except (*LOST, theirs.RedisError, theirs.RedisClusterException) as error:
            raise self._told(error, command) from error

    def run(self, script: str, keys: Sequence[str], args: Sequence[Any]) -> Any:
        """The answer of a script of this folder."""
        return self.call("EVAL", scripts()[script], len(keys), *keys, *args)

    def close(self) -> None:
        if self._client is not None:
            self._client.close()

    def _told(self, error: BaseException, command: Sequence[Any]) -> BideError:
        text = str(error)
        if isinstance(error, LOST) and not refused(error):
            return Unavailable(f"{self.shown} does not answer: check that it runs, and run the command again: it goes on.")
        if "CROSSSLOT" in text or "same key slot" in text:
            return ConfigError(
                f"The keys are on several nodes of the Cluster at {self.shown}, and can only be changed together on one. Keys "
                "with one hash tag, as in {delay}:bucket and {delay}:jobs, are on one node."
            )
        if "WRONGTYPE" in text:
            return ConfigError(f"At {self.shown}, {self._types(command)}, and this command reads another type. Check the name.")
        if isinstance(error, theirs.OutOfMemoryError) or "OOM command" in text:
            return EngineError(
                f"{self.shown} is at its maxmemory and refused a write, and what is taken is noted there first. Give it 32 MB "
                "more, with CONFIG SET maxmemory, and run the command again: it goes on."
            )
        if isinstance(error, theirs.NoPermissionError) or lacks(text):
            return ConfigError(lacking(self.shown, text, command[1] if command[0] == "EVAL" else ""))
        found = translated(error, self.shown, self._address.secrets)
        if isinstance(found, BideError):
            return found
        return EngineError(f"{self.shown} failed. Run the command again: it goes on.")

    def _types(self, command: Sequence[Any]) -> str:
        """Of the keys of a command, which type each has."""
        keys = command[3 : 3 + command[2]] if command[0] == "EVAL" else command[1:2]
        found: list[str] = []
        for key in keys:
            with suppress(*LOST, theirs.RedisError, theirs.RedisClusterException):
                name = bytes(self._client.execute_command("TYPE", key)).decode()
                shown = key.decode(errors="backslashreplace") if isinstance(key, bytes) else key
                found += [f"{shown} is a {name}"] if name != "none" else []
        return ", ".join(found) or "a key has a type"


def beside(key: str, name: str) -> str:
    """The name of a key of ours on the node of a Cluster that has `key`."""
    _, opens, rest = key.partition("{")
    tag, closes, _ = rest.partition("}")
    return f"{key}:{name}" if opens and closes and tag else f"{{{key}}}:{name}"


def _client(address: Endpoint) -> Any:
    made = address.client.connection_class("sync")
    options = address.connection_kwargs()
    if not address.seeds:
        return redis.Redis.from_pool(redis.ConnectionPool(connection_class=made, **options))
    for name in ("host", "port"):
        options.pop(name, None)
    options |= {"ssl": True} if issubclass(made, redis.SSLConnection) else {}
    if address.clustered:
        options.pop("db", None)
        first, *_ = address.seeds
        return RedisCluster(host=first.host, port=first.port, **{**options, "retry": Retry(NoBackoff(), 0)})
    asked = sentinel_address(address).connection_kwargs()
    for name in ("host", "port", "db"):
        asked.pop(name, None)
    seeds = [(each.host, each.port) for each in address.seeds]
    sentinel: Any = redis.Sentinel
    return sentinel(seeds, sentinel_kwargs=asked, **options).master_for(address.service)
