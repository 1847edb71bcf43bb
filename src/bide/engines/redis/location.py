"""Where a Redis URL says that the server is, or the servers are; and how that is shown."""

import ipaddress
import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from bide.engines.redis.topology import Place
from bide.errors import BadUrl

FORM = (
    "A Redis URL is redis://host:6379/0, rediss://host:6379/0 with TLS, unix:///path/to/redis.sock?db=0, "
    "redis+sentinel://host:26379,host:26379/service, or redis+cluster://host:6379,host:6379."
)
ENCODE = "In a user name, password, path or option write % as %25, @ as %40, / as %2F, ? as %3F, # as %23 and : as %3A."
SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_PORT, _SENTINEL_PORT = 6379, 26379
_MOST = 2**31 - 1


class Location(NamedTuple):
    """One server, or those of which one is to be found."""

    options: dict[str, Any]  # of a connection
    shown: str
    seeds: tuple[Place, ...] = ()
    service: str = ""


def location(scheme: str, servers: str, path: str, asked: Mapping[str, str]) -> Location:
    """`servers`: what stands between the login and the path."""
    base, _, kind = scheme.partition("+")
    if base == "unix":
        options = _socket(servers, path, asked)
        return Location(options, shown(base, options))
    if not kind:
        options = {**_network(servers, _PORT), "db": _db(_path_number(path.removeprefix("/")), asked)}
        return Location(options, shown(base, options))
    seeds = tuple(_place(each, _SENTINEL_PORT if kind == "sentinel" else _PORT) for each in servers.split(","))
    told = f"{scheme}://{','.join(map(str, seeds))}"
    network: dict[str, Any] = {**seeds[0]._asdict(), "socket_keepalive": True}
    if kind == "cluster":
        if path.strip("/") not in ("", "0") or asked.get("db", "0") != "0":
            raise BadUrl("A Redis Cluster has one database only: leave its number out of the URL.")
        return Location(network, told, seeds)
    service, _, number = path.removeprefix("/").partition("/")
    service = decoded(service)
    if not re.fullmatch(r"[\w.-]{1,128}", service, re.ASCII):
        raise BadUrl(f"The URL names no service that the Sentinels know, as mymaster in {scheme}://host:26379/mymaster.")
    db = _db(_path_number(number), asked)
    return Location({**network, "db": db}, f"{told}/{service}/{db}", seeds, service)


def shown(scheme: str, found: Mapping[str, Any]) -> str:
    if scheme == "unix":
        return f"unix://{found['path']}?db={found['db']}"
    return f"{scheme}://{Place(found['host'], found['port'])}/{found['db']}"


def _place(server: str, port: int) -> Place:
    found = _network(server, port)
    return Place(found["host"], found["port"])


def _path_number(text: str) -> int | None:
    return number(text, "path, the number of the database,", 0, _MOST) if text else None


def _network(server: str, usual: int) -> dict[str, Any]:
    in_brackets = re.fullmatch(r"\[(.*)\](?::(.*))?", server)
    if in_brackets:
        host, port = in_brackets.groups()
        host = decoded(host)
        if not _is_ipv6(host):
            raise BadUrl(f"The URL's host is in brackets, but is no IPv6 address, as in redis://[::1]:6379. {ENCODE}")
    else:
        host, colon, port = server.partition(":")
        host, port = decoded(host) or "localhost", port if colon else None
        if not re.fullmatch(r"[\w.-]{1,255}", host) or ":" in (port or ""):
            raise BadUrl(f"The URL's host can't be read. {FORM} An IPv6 address is put in brackets. {ENCODE}")
    return {
        "host": host,
        "port": usual if port is None else number(port, "port", 1, 65_535),
        "socket_keepalive": True,
    }


def _socket(server: str, path: str, asked: Mapping[str, str]) -> dict[str, Any]:
    if server or len(path) < 2:
        raise BadUrl("A URL of a Unix socket has three slashes: unix:///path/to/redis.sock, or unix://user:password@/path.")
    path = decoded(path)
    if not path.isprintable():
        raise BadUrl("The URL holds a path with characters that can't be shown: rename the file.")
    return {"path": path, "db": _db(None, asked)}


def _is_ipv6(host: str) -> bool:
    try:
        ipaddress.IPv6Address(host)
    except ValueError:
        return False
    return host.isprintable()  # what stands behind a % in it may be anything


def _db(in_path: int | None, asked: Mapping[str, str]) -> int:
    found = number(asked["db"], "option db", 0, _MOST) if "db" in asked else None
    if found is not None and in_path not in (None, found):
        raise BadUrl("The URL names one database in its path and another one in its option db: leave one of them out.")
    return found or in_path or 0


def decoded(text: str) -> str:
    """Without percent-encoding. A plus stays one, as it does in a path."""
    plain = unquote(text, errors="replace")
    if "\ufffd" in plain:
        raise BadUrl(f"The URL holds a percent-encoding that is not UTF-8. {ENCODE}")
    return plain


def number(text: str, name: str, least: int, most: int) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text, re.ASCII) or not least <= int(text) <= most:
        raise BadUrl(f"The URL's {name} can't be read: give a whole number from {least} to {most}.")
    return int(text)
