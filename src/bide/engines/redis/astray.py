"""What to write in place of a URL that leads to another kind of server."""

import re

from bide.errors import ConfigError

_NO_SCRIPTS = re.compile(r"unknown command ['`](?:EVALSHA|EVAL|SELECT)\b", re.IGNORECASE)
_NO_CLUSTER = re.compile(r"cluster support disabled|unknown command ['`]CLUSTER\b", re.IGNORECASE)
_NO_SENTINEL = re.compile(r"unknown command ['`]SENTINEL\b", re.IGNORECASE)
_NO_RIGHT = re.compile(r"no permissions to run the '?sentinel\b", re.IGNORECASE)
_NO_SERVICE = "No such master with that name"


def to_cluster(shown: str) -> str:
    base, place = _parts(shown)
    return f"write {base}+cluster://{place}, or give a RedisCluster as client="


def to_sentinels(shown: str, service: str = "SERVICE") -> str:
    base, place = _parts(shown)
    return f"write {base}+sentinel://{place}/{service}"


def to_server(shown: str) -> str:
    base, place = _parts(shown)
    return f"write {base}://{place.partition(',')[0]}/0"


def of_cluster(shown: str) -> ConfigError:
    """For a URL of one server, where a node of a Cluster answers."""
    return ConfigError(f"{shown} names a node of a Redis Cluster, which has a part of the keys only: {to_cluster(shown)}.")


def from_server(shown: str, text: str) -> ConfigError | None:
    """What the error of a server means that is not what its URL says; None when it means something else."""
    if "SELECT is not allowed in cluster mode" in text:
        return of_cluster(shown)
    if "DB index is out of range" in text:
        return ConfigError(
            f"{shown} names a database that the server does not have: name a lower one, such as 0. If this names a node of a "
            f"Redis Cluster, {to_cluster(shown)}."
        )
    if _NO_SCRIPTS.search(text):
        return ConfigError(
            f"{shown} runs no scripts, so it can't hold messages. If it is a Sentinel, {to_sentinels(shown)} "
            "with the name of the service, which `bide doctor` tells."
        )
    return None


def from_node(shown: str, text: str) -> ConfigError | None:
    """What the error of a server means that was asked about its Cluster; None when it may know in a while."""
    if not _NO_CLUSTER.search(text):
        return None
    if "disabled" in text:
        return ConfigError(f"{shown} names a server that is no node of a Cluster: {to_server(shown)}.")
    return ConfigError(
        f"{shown} names a server that knows nothing of Clusters: {to_server(shown)}, or, if it is a Sentinel, "
        f"{to_sentinels(shown)}."
    )


def from_sentinel(shown: str, service: str, text: str) -> ConfigError | None:
    """What the error of a server means that was asked for a service; None when it may know in a while."""
    if _NO_SENTINEL.search(text):
        return ConfigError(
            f"{shown} names a server that is no Sentinel: name the Sentinels, which usually have port 26379, or "
            f"{to_server(shown)} for the server itself."
        )
    if _NO_RIGHT.search(text):
        return ConfigError(
            f"The user at the Sentinels of {shown} may not ask for the master: allow it there, with ACL SETUSER … "
            "+sentinel|master."
        )
    if _NO_SERVICE in text:
        return ConfigError(
            f"The Sentinels of {shown} know no service {service}: correct its name. `bide doctor` tells the names they know."
        )
    return None


def _parts(shown: str) -> tuple[str, str]:
    """redis or rediss, and where the servers are; a socket's URL does not say that."""
    scheme, _, rest = shown.partition("://")
    base = scheme.partition("+")[0]
    return ("redis", "host:6379") if base == "unix" else (base, rest.partition("/")[0])
