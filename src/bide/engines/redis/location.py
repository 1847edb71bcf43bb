"""Reads a Redis URL, or takes a client in its place: where the server is, what the queue was asked for, how that is shown.

redis://[user[:password]@]host[:port][/db][?options], rediss:// with TLS, unix://[user:password@]/path/to.sock[?options]

No error here shows a part of the URL that could be a password in the wrong place; of the options only the paths of files are
shown. redis-py's own reader is not strict enough: it takes port 0, a path that is no number and any option, and its errors
quote the URL.
"""

import contextlib
import difflib
import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from bide.core import options
from bide.engines.base import Settings
from bide.engines.redis.client import Endpoint, Secret, of_client, of_url, redacted, seeds_of, where
from bide.engines.redis.topology import ServerPlace
from bide.errors import BadOption, BadTopic, BadUrl, ConfigError

FORM = (
    "A Redis URL is redis://host:6379/0, rediss://host:6379/0 with TLS, unix:///path/to/redis.sock?db=0, "
    "redis+sentinel://host:26379,host:26379/service, or redis+cluster://host:6379,host:6379."
)
ENCODE = "In a user name, password, path or option write % as %25, @ as %40, / as %2F, ? as %3F, # as %23 and : as %3A."
SCHEMES = ("redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster")
_PORT, _SENTINEL_PORT = 6379, 26379
_MOST = 2**31 - 1
_UNCHECKED = "the server's certificate is not checked (verify=none), so anybody on the way can read and change messages"


class Location(NamedTuple):
    """One server, or those of which one is to be found."""

    options: dict[str, Any]  # of a connection
    shown: str
    seeds: tuple[ServerPlace, ...] = ()
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
    return f"{scheme}://{ServerPlace(found['host'], found['port'])}/{found['db']}"


def _place(server: str, port: int) -> ServerPlace:
    found = _network(server, port)
    return ServerPlace(found["host"], found["port"])


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


_DEFAULT_NAMESPACE = Settings(url="").namespace

_NAMES = (
    "db", "namespace", "shards", "wake", "allow_eviction", "confirm", "timeout", "connect_timeout", "sentinel_username",
    "sentinel_password",
)  # fmt: skip
_FILES = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
_TLS_NAMES = (*_FILES, "verify", "ssl_cert_reqs", "ssl_check_hostname")
_KNOWN = (*_NAMES, *_FILES, "verify")
_ALIASES = {theirs: ours for ours, theirs in _FILES.items()}
_MEANT = {"socket_timeout": "timeout", "socket_connect_timeout": "connect_timeout"}
_WORD = re.compile(r"[a-z]{2,}(_[a-z]+)*", re.ASCII)
_YES_NO = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def read(settings: Settings) -> Endpoint:
    """What the URL or the client says. Nothing is connected."""
    scheme, _, rest = settings.url.partition("://")
    if scheme not in SCHEMES:
        raise BadUrl(FORM)
    if "#" in rest:
        raise BadUrl(f"The URL holds a #. {ENCODE}")
    place, _, asked = rest.partition("?")
    login, slash, path = place.partition("/")
    if "@" in path or "@" in asked:
        raise BadUrl(f"The URL holds an @ behind its host. {ENCODE}")
    if settings.client is not None:
        return _of_client(settings, scheme, place, _split(asked))
    return _of_url(settings, scheme, login, slash + path, _split(asked))


def _of_url(settings: Settings, scheme: str, login: str, path: str, asked: Mapping[str, str]) -> Endpoint:
    user, _, servers = login.rpartition("@")
    username, _, encoded = user.partition(":")
    password = Secret(decoded(encoded)) if encoded else None
    found, note, base = location(scheme, servers, path, asked), "", scheme.partition("+")[0]
    sentinels = _sentinel_login(scheme, asked)
    if base == "rediss":
        secrets = [each.reveal() for each in (password, sentinels.get("sentinel_password")) if each]
        taken, note = _tls(asked, lambda text: redacted(text, secrets))
        found.options.update(taken)
    elif _names_tls(asked):
        raise BadUrl(f"The URL has options for TLS, but begins with {scheme}://: write rediss:// or leave them out.")
    return Endpoint(
        shown=found.shown,
        namespace=_namespace(asked, settings.namespace),
        client=of_url(base, found.options),
        username=decoded(username) or None,
        password=password,
        tls_note=note,
        seeds=found.seeds,
        service=found.service,
        **sentinels,
        **_wishes(asked, settings),
    )


def _sentinel_login(scheme: str, asked: Mapping[str, str]) -> dict[str, Any]:
    given = {name: asked[name] for name in ("sentinel_username", "sentinel_password") if name in asked}
    if given and not scheme.endswith("+sentinel"):
        raise BadUrl(
            f"The URL has a login for Sentinels, but begins with {scheme}://: write redis+sentinel:// or leave it out."
        )
    return {name: Secret(text) if name.endswith("password") else text for name, text in given.items()}


def _of_client(settings: Settings, scheme: str, place: str, asked: Mapping[str, str]) -> Endpoint:
    if scheme != "redis" or place.strip("/") or "db" in asked or _names_tls(asked):
        raise ConfigError(
            "The client knows its server, so the URL beside client= names none: write redis:// or, with options of the "
            "queue, redis://?namespace=shop&shards=4 (no host, user, password, db or TLS)."
        )
    found, taken = of_client(settings.client)
    seeds = tuple(seeds_of(settings.client))
    password = taken.get("password")
    said: dict[str, Any] = {"timeout": taken.get("socket_timeout"), "connect_timeout": taken.get("socket_connect_timeout")}
    said = {name: float(seconds) for name, seconds in said.items() if seconds}  # none would be to wait for ever: the default
    return Endpoint(
        shown=f"{found.scheme}+cluster://{','.join(map(str, seeds))}" if seeds else shown(found.scheme, where(settings.client)),
        seeds=seeds,
        namespace=_namespace(asked, settings.namespace),
        client=found,
        username=taken.get("username"),
        password=Secret(password) if password else None,
        client_name=taken.get("client_name") or "bide",
        **(said | _wishes(asked, settings)),
    )


def _split(text: str) -> dict[str, str]:
    """The options by the names that are used here; unknown ones and those that are said twice are refused."""
    found: dict[str, str] = {}
    secret = False  # whether this may be a piece of a password that holds an &
    for position, part in enumerate(text.split("&") if text else [], 1):
        given, equals, value = part.partition("=")
        name = _ALIASES.get(given, given)
        if name not in _NAMES + _TLS_NAMES:
            raise BadUrl(_unknown(given, position, known=bool(value) and not secret and _WORD.fullmatch(given) is not None))
        secret = secret or name == "sentinel_password"
        if not equals or not value:
            raise BadUrl(f"The URL's option {name} has no value: write {name}=… or leave it out.")
        if name in found:
            raise BadUrl(f"The URL gives its option {name} twice: leave one of them out.")
        found[name] = decoded(value)
    return found


def _unknown(name: str, position: int, *, known: bool) -> str:
    """`known`: it can be no piece of a password."""
    there_is = f"There is: {', '.join(_KNOWN)}."
    if name in ("username", "password"):
        return f"{name} is no option: write redis://user:password@host, or unix://user:password@/path/to.sock."
    close = [_MEANT[name]] if name in _MEANT else difflib.get_close_matches(name, _NAMES + _TLS_NAMES, 1, 0.7)
    if close:
        return f"The URL's option {name} is not known. Is it {close[0]}? {there_is}"
    return f"The URL's option {name if known else f'number {position}'} is not known. {there_is}"


def _seconds(text: str, name: str) -> float:
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,6})?", text, re.ASCII) or not 0.1 <= float(text) <= 600:
        raise BadUrl(f"The URL's option {name} can't be read: give seconds from 0.1 to 600, as in {name}=5.")
    return float(text)


def _one_of(text: str, name: str, choices: Mapping[str, Any], told: str) -> Any:
    if text not in choices:
        raise BadUrl(f"The URL's option {name} can't be read: give {told}.")
    return choices[text]


def _confirm(text: str, name: str) -> str:
    with contextlib.suppress(BadOption):  # its text shows the value
        return options.confirm(text)
    raise BadUrl("The URL's option confirm can't be read: give memory, aof, or replicas:1 with the number of replicas.")


_WISHES: Mapping[str, Callable[[str, str], Any]] = {
    "shards": lambda text, name: number(text, f"option {name}", 1, 64),
    "wake": lambda text, name: _one_of(
        text, name, {way: way for way in ("list", "poll", "expiry")}, "one of list, poll, expiry"
    ),
    "allow_eviction": lambda text, name: _one_of(text, name, {"0": False, "1": True}, "0 or 1"),
    "confirm": _confirm,
    "timeout": _seconds,
    "connect_timeout": _seconds,
}


def _wishes(asked: Mapping[str, str], settings: Settings) -> dict[str, Any]:
    """What is said of how the queue works, by the names of Address; what is not said is not in it."""
    wishes = {name: parse(asked[name], name) for name, parse in _WISHES.items() if name in asked}
    confirm = wishes.setdefault("confirm", settings.confirm)
    if settings.confirm not in ("memory", confirm):
        raise ConfigError(
            f"The URL's confirm is not the queue's, which is {settings.confirm}: say it in one of the two places."
        )
    if confirm != "memory" and wishes.get("wake") == "poll":
        raise ConfigError("Behind a proxy nothing can be confirmed: leave confirm= out, or wake=poll.")
    return wishes


def _namespace(asked: Mapping[str, str], given: str) -> str:
    """The URL's, else the queue's; two that differ would be a guess."""
    named = asked.get("namespace")
    if named is None:
        return given
    with contextlib.suppress(BadTopic):  # its text shows the value, and an error raised here would still refer to it
        options.topic(named)
        if given not in (_DEFAULT_NAMESPACE, named):
            raise ConfigError(f"The URL's namespace is not the queue's, which is {given}: name it in one of the two places.")
        return named
    raise BadUrl("The URL's namespace can't be read: give 1 to 128 characters of A-Z a-z 0-9 . _ - as in namespace=shop.")


def _names_tls(asked: Mapping[str, str]) -> bool:
    return not asked.keys().isdisjoint(_TLS_NAMES)


def _tls(asked: Mapping[str, str], shown: Callable[[str], str]) -> tuple[dict[str, Any], str]:
    """What redis-py's connections with TLS take, and a note when it is weak. `shown` keeps a secret out of a path."""
    if ("cert" in asked) != ("key" in asked):
        raise BadUrl("The URL names one of cert and key: give both, as the server asks for a pair, or neither.")
    for name in _FILES:
        path = asked.get(name)
        if path is not None and not (path.isprintable() and os.path.isfile(path)):
            raise ConfigError(f"The file of the URL's option {name} is not there: {shown(ascii(path))}. Correct its path.")
    verify = _verify(asked)
    taken: dict[str, Any] = {theirs: asked[ours] for ours, theirs in _FILES.items() if ours in asked}
    taken["ssl_cert_reqs"] = "none" if verify == "none" else "required"
    taken["ssl_check_hostname"] = verify == "full"
    return taken, _UNCHECKED if verify == "none" else ""


def _verify(asked: Mapping[str, str]) -> str:
    """One of full, ca and none."""
    verify, theirs = asked.get("verify"), (asked.get("ssl_cert_reqs"), asked.get("ssl_check_hostname"))
    if verify is not None:
        if theirs != (None, None):
            raise BadUrl("The URL gives verify beside ssl_cert_reqs or ssl_check_hostname: give verify alone.")
        if verify not in ("full", "ca", "none"):
            raise BadUrl("The URL's option verify can't be read: give one of full, ca (any host name), none.")
        return verify
    required, check = theirs[0] or "required", _YES_NO.get((theirs[1] or "true").lower())
    if required not in ("required", "none"):
        raise BadUrl("The URL's option ssl_cert_reqs can't be read: give required or none.")
    if check is None:
        raise BadUrl("The URL's option ssl_check_hostname can't be read: give true or false.")
    if required == "none":
        return "none"
    return "full" if check else "ca"
