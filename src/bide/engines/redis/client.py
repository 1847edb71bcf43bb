"""How redis-py's connections to a server are made, sync and async, from a URL or a client; secrets are kept out of reprs."""

import inspect
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

import msgspec
import redis
import redis.asyncio as aioredis

from bide.engines.redis.topology import ServerPlace
from bide.errors import ConfigError

_NO_LIMIT = 2**31  # the engine counts its connections itself


class Secret:
    """Holds a text that nothing shows: only `reveal` gives it back."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return "***"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._text == self._text

    def __hash__(self) -> int:
        return hash(self._text)


def redacted(text: str, secrets: Iterable[str]) -> str:
    """The text with *** in place of each secret: raw, percent-encoded, or escaped as repr and JSON do, in any mixture."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):  # a longer one may hold a shorter one
        text = re.sub("".join(map(_spellings, secret)), "***", text)
    return text


def _spellings(char: str) -> str:
    """A pattern of all the ways to write one character: people encode a part of a password only, as they please."""
    encoded = char.encode("utf-8", "surrogatepass")
    escaped = {
        "".join(f"%{byte:02x}" for byte in encoded),  # in a URL
        "".join(f"\\x{byte:02x}" for byte in encoded),  # in the repr of bytes
        ascii(char)[1:-1],  # in a repr, or in ascii()
        json.dumps(char)[1:-1],
        f"\\{char}",  # a quote in a repr that holds both kinds
    }
    if char == " ":
        escaped.add("+")  # in a form
    longest_first = sorted(escaped - {char}, key=len, reverse=True)
    return f"(?:(?i:{'|'.join(map(re.escape, longest_first))})|{re.escape(char)})"


Colour: TypeAlias = Literal["sync", "async"]
Wake: TypeAlias = Literal["list", "poll", "expiry"]

_CLASSES: dict[str, dict[Colour, Any]] = {
    "redis": {"sync": redis.Connection, "async": aioredis.Connection},
    "rediss": {"sync": redis.SSLConnection, "async": aioredis.SSLConnection},
    "unix": {"sync": redis.UnixDomainSocketConnection, "async": aioredis.UnixDomainSocketConnection},
}

_INSTEAD: dict[Colour, str] = {
    "sync": "give a Queue a redis.Redis as client=, or name the server in the URL.",
    "async": "give an AsyncQueue a redis.asyncio.Redis as client=, or name the server in the URL.",
}

_OURS = {
    # The engine decides: answers are bytes in RESP2, nothing is sent twice, and no ping comes between two commands.
    "cache", "cache_config", "decode_responses", "encoder_class", "encoding", "encoding_errors", "event_dispatcher",
    "health_check_interval", "himport_registry", "legacy_responses", "max_connections", "parser_class", "protocol", "retry",
    "retry_on_error", "retry_on_timeout",
    # The address holds them.
    "client_name", "password", "socket_connect_timeout", "socket_timeout", "username",
    # redis-py adds them for servers that announce their maintenance, which needs RESP3.
    "maint_notifications_config", "maint_notifications_pool_handler", "maintenance_notification_hash", "maintenance_state",
    "orig_host_address", "orig_socket_connect_timeout", "orig_socket_timeout", "oss_cluster_maint_notifications_handler",
}  # fmt: skip
"""What is not taken over from a client."""


class Client:
    """A server, and how its connections are made. Its repr tells nothing, as what it holds may be secret."""

    def __init__(
        self, scheme: str, connection: Any, options: Mapping[str, Any], colour: Colour | None = None, given: object = None
    ) -> None:
        self.scheme: str = scheme
        self.colour: Colour | None = colour  # of the client that this was taken from; None: of no client
        self.given: object = given  # that client, as its pool of sentinels must live as long as our connections
        self._connection = connection
        self._options = {name: value for name, value in options.items() if name not in _OURS}

    @property
    def secrets(self) -> list[str]:
        """Of the key file; the address knows the other ones."""
        found = self._options.get("ssl_password")
        return [found] if isinstance(found, str) else []

    def without_db(self) -> "Client":
        options = {name: value for name, value in self._options.items() if name != "db"}
        return Client(self.scheme, self._connection, options, self.colour, self.given)

    def connection_class(self, colour: Colour) -> Any:
        if colour == self.colour:
            return self._connection
        if self._connection not in _CLASSES[self.scheme].values():
            raise ConfigError(
                f"The client makes connections of its own class, {self._connection.__name__}, "
                f"and there is none for {colour} code: {_INSTEAD[colour]}"
            )
        return _CLASSES[self.scheme][colour]

    def options(self, colour: Colour) -> dict[str, Any]:
        """What a connection takes, but for what every connection of ours takes."""
        if self.colour in (None, colour):
            return dict(self._options)
        known = parameters(self.connection_class(colour)) - {"redis_connect_func"}  # it is of the client's colour
        for name, value in self._options.items():
            if value and name not in known:
                raise ConfigError(f"The client has {name}, which {colour} connections can't take over: {_INSTEAD[colour]}")
        return {name: value for name, value in self._options.items() if name in known}


def of_url(scheme: str, options: Mapping[str, Any]) -> Client:
    return Client(scheme, _CLASSES[scheme]["sync"], options)


def of_client(client: object) -> tuple[Client, Mapping[str, Any]]:
    """Where a client goes, and all that its connections are made with."""
    if isinstance(client, (redis.RedisCluster, aioredis.RedisCluster)):
        return _of_cluster(client)
    if not isinstance(client, (redis.Redis, aioredis.Redis)):
        raise ConfigError(
            f"client= is a {type(client).__name__}. Give a Redis or a RedisCluster of redis or of redis.asyncio, or leave it "
            "out and name the server in the URL."
        )
    pool: Any = client.connection_pool
    colour: Colour = "sync" if isinstance(client, redis.Redis) else "async"
    taken: Mapping[str, Any] = pool.connection_kwargs
    return Client(scheme_of(pool.connection_class), pool.connection_class, taken, colour, client), taken


def _of_cluster(client: Any) -> tuple[Client, Mapping[str, Any]]:
    """Where a client of a Cluster begins, and all that its connections are made with."""
    colour: Colour = "sync" if isinstance(client, redis.RedisCluster) else "async"
    taken = dict(client.nodes_manager.connection_kwargs)
    tls = taken.get("ssl") or issubclass(taken.get("connection_class") or object, tuple(_CLASSES["rediss"].values()))
    scheme = "rediss" if tls else "redis"
    connection = _CLASSES[scheme][colour]
    known = parameters(connection) - {"redis_connect_func"}  # which tells a node that its client reads from replicas
    [first, *_] = seeds_of(client)
    options = {name: value for name, value in taken.items() if name in known}
    return Client(scheme, connection, {**options, "host": first.host, "port": first.port}, colour, client), taken


def seeds_of(client: Any) -> Sequence[ServerPlace]:
    """The nodes that a client of a Cluster begins with; none of a client of one server."""
    if not isinstance(client, (redis.RedisCluster, aioredis.RedisCluster)):
        return ()
    return [ServerPlace(node.host, int(node.port)) for node in client.nodes_manager.startup_nodes.values()]


def where(client: Any) -> dict[str, Any]:
    """Host or path, and db, of a client, to be shown. A pool of sentinels knows a service in place of a host."""
    pool = client.connection_pool
    taken = pool.connection_kwargs
    found = {"db": taken.get("db") or 0}
    if taken.get("path"):
        return {**found, "path": taken["path"]}
    host = taken.get("host") or getattr(pool, "service_name", None) or "localhost"
    return {**found, "host": host, "port": taken.get("port") or 6379}


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """One server, and how this queue uses it."""

    shown: str  # for banners and logs: no user, no password
    namespace: str
    client: Client
    username: str | None = None
    password: Secret | None = None
    client_name: str = "bide"
    shards: int | None = None  # None: not said
    wake: Wake = "list"
    allow_eviction: bool = False
    confirm: str = "memory"
    timeout: float = 5.0  # seconds until a command counts as lost
    connect_timeout: float = 5.0
    tls_note: str = ""  # what is weak about the TLS that was asked for
    seeds: tuple[ServerPlace, ...] = ()  # of several servers those that are asked first: Sentinels, or nodes of a Cluster
    service: str = ""  # that the Sentinels watch; empty for a Cluster
    sentinel_username: str | None = None
    sentinel_password: Secret | None = None

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("shown", self.shown)]

    @property
    def clustered(self) -> bool:
        return bool(self.seeds) and not self.service

    @property
    def db(self) -> int:
        return int(self.client.options(self.client.colour or "sync").get("db") or 0)

    @property
    def secrets(self) -> list[str]:
        """What `redacted` is to keep out of the driver's error texts."""
        known = [each.reveal() for each in (self.password, self.sentinel_password) if each]
        return [*known, *self.client.secrets]

    def connection_kwargs(self, colour: Colour = "sync") -> dict[str, Any]:
        """What redis-py makes a connection with.

        A command is never sent twice by redis-py: we use its connections directly, and they try again nothing but to
        connect. That too is left to the engine, so `retry` is None, also where a client has one.
        """
        named = {"client_name": self.client_name}
        return {
            **self.client.options(colour),
            **_login(self.username, self.password),
            **({"client_name": None, **_nameless(colour)} if self.wake == "poll" else named),  # a proxy may know no names
            "socket_timeout": self.timeout,
            "socket_connect_timeout": self.connect_timeout,
            "protocol": 2,
            "retry": None,
        }


def sentinel_address(address: Endpoint) -> Endpoint:
    """How the Sentinels of a service are reached: they have users of their own, and no databases."""
    return msgspec.structs.replace(
        address,
        client=address.client.without_db(),
        username=address.sentinel_username,
        password=address.sentinel_password,
        wake="poll",  # so its connections have no name, which older Sentinels don't know
        seeds=(),
    )


def sync_pool(address: Endpoint) -> redis.ConnectionPool:
    """For its `make_connection` only. It is ours also with client=, so that its limits and its users don't meet us."""
    return redis.ConnectionPool(
        connection_class=address.client.connection_class("sync"),
        max_connections=_NO_LIMIT,
        **address.connection_kwargs("sync"),
    )


def async_pool(address: Endpoint) -> aioredis.ConnectionPool:
    """The async one of the same."""
    return aioredis.ConnectionPool(
        connection_class=address.client.connection_class("async"),
        max_connections=_NO_LIMIT,
        **address.connection_kwargs("async"),
    )


def _login(username: str | None, password: Secret | None) -> dict[str, Any]:
    """As a provider, not as a plain password: what shows a pool, or a variable of a failed call, then shows an object."""
    if not username and not password:
        return {}
    revealed = password.reveal() if password else None
    return {"credential_provider": redis.UsernamePasswordCredentialProvider(username, revealed)}


def _nameless(colour: Colour) -> dict[str, Any]:
    """For a connection that does not tell the server which driver it is made by."""
    known = parameters(_CLASSES["redis"][colour])
    return {"driver_info": None} if "driver_info" in known else {"lib_name": None, "lib_version": None}


def scheme_of(connection: Any) -> str:
    """A class of the user's own counts as what it was made from."""
    for scheme in ("unix", "rediss"):
        if issubclass(connection, tuple(_CLASSES[scheme].values())):
            return scheme
    return "redis"


def parameters(connection: type) -> set[str]:
    """All that a class of connections takes, its bases included; it differs between releases of redis-py."""
    return {name for base in connection.__mro__[:-1] for name in inspect.signature(base).parameters}
