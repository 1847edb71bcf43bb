"""Reads a Redis URL, or takes a client in its place: where the server is, and what the queue was asked for.

redis://[user[:password]@]host[:port][/db][?options], rediss:// with TLS, unix://[user:password@]/path/to.sock[?options]

No error here shows a part of the URL that could be a password in the wrong place.
"""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

import msgspec
import redis
import redis.asyncio as aioredis

from bide.engines.base import Settings
from bide.engines.redis import query, reach
from bide.engines.redis.reach import Colour, Reach
from bide.engines.redis.redaction import Secret, redacted
from bide.errors import BadUrl, ConfigError

_FORM = "A Redis URL is redis://host:6379/0, rediss://host:6379/0 with TLS, or unix:///path/to/redis.sock?db=0."
_DEFAULT_NAMESPACE = Settings(url="").namespace
_MOST = 2**31 - 1
_NO_LIMIT = 2**31  # the engine counts its connections itself


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """One server, and how this queue uses it."""

    shown: str  # for banners and logs: no user, no password
    namespace: str
    reach: Reach
    username: str | None = None
    password: Secret | None = None
    client_name: str = "bide"
    shards: int | None = None  # None: not said
    wake: query.Wake = "list"
    allow_eviction: bool = False
    timeout: float = 5.0  # seconds until a command counts as lost
    connect_timeout: float = 5.0
    tls_note: str = ""  # what is weak about the TLS that was asked for
    client: object | None = None  # held, as its pool of sentinels must live as long as our connections

    def __repr__(self) -> str:
        return f"Address({self.shown!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("shown", self.shown)]

    @property
    def db(self) -> int:
        return int(self.reach.options("sync" if self.reach.colour is None else self.reach.colour).get("db") or 0)

    @property
    def secrets(self) -> list[str]:
        """What `redacted` is to keep out of the driver's error texts."""
        return [*([self.password.reveal()] if self.password else []), *self.reach.secrets]

    def connection_kwargs(self, colour: Colour = "sync") -> dict[str, Any]:
        """What redis-py makes a connection with.

        A command is never sent twice by redis-py: we use its connections directly, and they try again nothing but to
        connect. That too is left to the engine, so `retry` is None, also where a client has one.
        """
        return {
            **self.reach.options(colour),
            **reach.login(self.username, self.password),
            # A proxy may know nothing of names.
            **({"client_name": None, **reach.nameless(colour)} if self.wake == "poll" else {"client_name": self.client_name}),
            "socket_timeout": self.timeout,
            "socket_connect_timeout": self.connect_timeout,
            "protocol": 2,
            "retry": None,
        }


def sync_pool(address: Address) -> redis.ConnectionPool:
    """For its `make_connection` only. It is ours also with client=, so that its limits and its users don't meet us."""
    return redis.ConnectionPool(
        connection_class=address.reach.connection_class("sync"),
        max_connections=_NO_LIMIT,
        **address.connection_kwargs("sync"),
    )


def async_pool(address: Address) -> aioredis.ConnectionPool:
    """The other colour of sync_pool."""
    return aioredis.ConnectionPool(
        connection_class=address.reach.connection_class("async"),
        max_connections=_NO_LIMIT,
        **address.connection_kwargs("async"),
    )


def read(settings: Settings) -> Address:
    """What the URL or the client says. Nothing is connected."""
    scheme, _, rest = settings.url.partition("://")
    if scheme not in ("redis", "rediss", "unix"):
        raise BadUrl(_FORM)
    if "#" in rest:
        raise BadUrl(f"The URL holds a #. {query.ENCODE}")
    place, _, options = rest.partition("?")
    login, path = _split(place)
    if "@" in path or "@" in options:
        raise BadUrl(f"The URL holds an @ behind its host. {query.ENCODE}")
    if settings.client is not None:
        return _of_client(settings, scheme, place, query.split(options))
    return _of_url(settings, scheme, login, path, query.split(options))


def _split(place: str) -> tuple[str, str]:
    """Who and where, and the path."""
    end = place.find("/")
    return (place, "") if end < 0 else (place[:end], place[end:])


def _of_url(settings: Settings, scheme: str, login: str, path: str, asked: Mapping[str, str]) -> Address:
    user, _, server = login.rpartition("@")
    username, _, encoded = user.partition(":")
    password = Secret(query.decoded(encoded)) if encoded else None
    found = _socket(server, path, asked) if scheme == "unix" else _network(server, path, asked)
    shown, note = _shown(scheme, found), ""
    if scheme == "rediss":
        hidden = [password.reveal()] if password else []
        taken, note = query.tls(asked, lambda text: redacted(text, hidden))
        found |= {**taken, "socket_keepalive": True}
    elif query.names_tls(asked):
        raise BadUrl(f"The URL has options for TLS, but begins with {scheme}://: write rediss:// or leave them out.")
    elif scheme == "redis":
        found["socket_keepalive"] = True
    return Address(
        shown=shown,
        namespace=query.namespace(asked, settings.namespace, _DEFAULT_NAMESPACE),
        reach=reach.of_url(scheme, found),
        username=query.decoded(username) or None,
        password=password,
        tls_note=note,
        **query.wishes(asked),
    )


def _network(server: str, path: str, asked: Mapping[str, str]) -> dict[str, Any]:
    in_brackets = re.fullmatch(r"\[(.*)\](?::(.*))?", server)
    if in_brackets:
        host, port = in_brackets.groups()
        host = query.decoded(host)
        if not _is_ipv6(host):
            raise BadUrl(f"The URL's host is in brackets, but is no IPv6 address, as in redis://[::1]:6379. {query.ENCODE}")
    else:
        host, colon, port = server.partition(":")
        host, port = query.decoded(host) or "localhost", port if colon else None
        if not re.fullmatch(r"[\w.-]{1,255}", host) or ":" in (port or ""):
            raise BadUrl(f"The URL's host can't be read. {_FORM} An IPv6 address is put in brackets. {query.ENCODE}")
    in_path = path.removeprefix("/") or None
    found = query.number(in_path, "path, the number of the database,", 0, _MOST)
    return {
        "host": host,
        "port": query.number(port, "port", 1, 65_535) or 6379,
        "db": _db(found, asked),
    }


def _socket(server: str, path: str, asked: Mapping[str, str]) -> dict[str, Any]:
    if server or len(path) < 2:
        raise BadUrl("A URL of a Unix socket has three slashes: unix:///path/to/redis.sock, or unix://user:password@/path.")
    return {"path": query.decoded_path(path), "db": _db(None, asked)}


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return host.isprintable()  # what stands behind a % in it may be anything


def _db(in_path: int | None, asked: Mapping[str, str]) -> int:
    found = query.number(asked.get("db"), "option db", 0, _MOST)
    if found is not None and in_path not in (None, found):
        raise BadUrl("The URL names one database in its path and another one in its option db: leave one of them out.")
    return found or in_path or 0


def _of_client(settings: Settings, scheme: str, place: str, asked: Mapping[str, str]) -> Address:
    if scheme != "redis" or place.strip("/") or "db" in asked or query.names_tls(asked):
        raise ConfigError(
            "The client knows its server, so the URL beside client= names none: write redis:// or, with options of the "
            "queue, redis://?namespace=shop&shards=4 (no host, user, password, db or TLS)."
        )
    found, taken = reach.of_client(settings.client)
    password = taken.get("password")
    said: dict[str, Any] = {"timeout": taken.get("socket_timeout"), "connect_timeout": taken.get("socket_connect_timeout")}
    said = {name: float(seconds) for name, seconds in said.items() if seconds}  # none would be to wait for ever: the default
    return Address(
        shown=_shown(found.scheme, reach.where(settings.client)),
        namespace=query.namespace(asked, settings.namespace, _DEFAULT_NAMESPACE),
        reach=found,
        username=taken.get("username"),
        password=Secret(password) if password else None,
        client_name=taken.get("client_name") or "bide",
        client=settings.client,
        **(said | query.wishes(asked)),
    )


def _shown(scheme: str, found: Mapping[str, Any]) -> str:
    if scheme == "unix":
        return f"unix://{found['path']}?db={found['db']}"
    host = f"[{found['host']}]" if ":" in found["host"] else found["host"]
    return f"{scheme}://{host}:{found['port']}/{found['db']}"
