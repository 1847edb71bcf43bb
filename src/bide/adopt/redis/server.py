"""The Redis of an old system: one server, one behind Sentinels, or a Cluster; and the scripts that run there."""

from collections.abc import Sequence
from contextlib import suppress
from importlib.resources import files
from typing import Any

import redis
import redis.exceptions as theirs
from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.retry import Retry

from bide.adopt.redis import rights
from bide.engines.base import Settings
from bide.engines.redis.client import Address, sentinel_address
from bide.engines.redis.failures import LOST, refused, translated
from bide.engines.redis.url import read
from bide.errors import BideError, ConfigError, EngineError, Unavailable


class Server:
    """Sends each command once: whether one was done whose answer is lost, the source finds out by looking again."""

    def __init__(self, url: str) -> None:
        self._address: Address = read(Settings(url=url))
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
        text = files(__package__).joinpath(f"{script}.lua").read_text(encoding="utf-8")
        return self.call("EVAL", text, len(keys), *keys, *args)

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
        if isinstance(error, theirs.NoPermissionError) or rights.lacks(text):
            return ConfigError(rights.lacking(self.shown, text, command[1] if command[0] == "EVAL" else ""))
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


def _client(address: Address) -> Any:
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
