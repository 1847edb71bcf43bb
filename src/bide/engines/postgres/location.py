"""Reads a PostgreSQL URL, or a pool: which servers, what the queue was asked for, and what the server is set to for bide."""

import inspect
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict

from bide.engines.base import Settings
from bide.errors import BadUrl, ConfigError, Unavailable

FORM = "A PostgreSQL URL is postgres://user:password@host:5432/database?options."
ESCAPED = "In a password write @ as %40, : as %3A, / as %2F, ? as %3F, # as %23 and % as %25."
LONGEST_NAME = 63  # bytes: longer names of schemas would be cut off in silence
DEFAULT = Settings(url="").namespace
_LIBPQ = frozenset(option.keyword.decode() for option in psycopg.pq.Conninfo.get_defaults())  # options, by their names
_WRITABLE = ("read-write", "primary", "any")  # values of target_session_attrs
_OPTIONS = ("namespace", "wake", "migrate", "timeout", "connections")
_YES_NO = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
_ENCODINGS = ("UTF8", "SQL_ASCII")  # the second stores the bytes that come


class Pool:
    """A pool of psycopg: the engine makes connections of its own, as the pool makes them.

    Its repr tells nothing, as what the pool holds may be secret.
    """

    def __init__(self, client: object) -> None:
        from psycopg_pool import AsyncConnectionPool, ConnectionPool  # noqa: PLC0415 (starts no threads, but takes its time)

        if not isinstance(client, (ConnectionPool, AsyncConnectionPool)):
            raise ConfigError(
                f"client= is a {type(client).__name__}. Give a ConnectionPool or an AsyncConnectionPool of psycopg_pool, or "
                "leave it out and name the server in the URL. To send in a transaction of yours, give its "
                "connection to a call: queue.send(…, connection=…)."
            )
        self._pool: Any = client
        self.changes: bool = callable(self._pool.conninfo) or callable(self._pool.kwargs)

    def conninfo(self) -> dict[str, Any]:
        """Where to connect, and as whom. A pool may have a function tell it anew each time, as for passwords that expire."""
        text, options = _told(self._pool.conninfo) or "", _told(self._pool.kwargs) or {}
        if not isinstance(text, str) or not isinstance(options, Mapping):
            raise ConfigError("The pool's conninfo is not a text, or its kwargs are not a dict: try the pool by itself.")
        try:
            found: Mapping[str, Any] = conninfo_to_dict(text)
        except psycopg.ProgrammingError:
            raise ConfigError("The pool's conninfo can't be read by libpq: try the pool by itself.") from None
        return {**found, **{name: value for name, value in options.items() if name in _LIBPQ}}


class Address(NamedTuple):
    """Where the messages are."""

    shown: str
    conninfo: Mapping[str, Any]  # holds the password; of a pool that changes it, nothing
    pool: Pool | None  # to connect as it does
    namespace: str
    schema: str
    wake: str
    migrate: bool
    timeout: float
    connections: int

    def connecting(self) -> Mapping[str, Any]:
        """What libpq is to be told. Of several servers, the one that takes writes is meant."""
        conninfo = self.conninfo
        if self.pool is not None:
            conninfo = self.pool.conninfo()
            _check_servers(conninfo)
        return {"target_session_attrs": "read-write", **conninfo} if _several(conninfo) else conninfo

    def several(self) -> bool:
        """Whether another server may be the primary, as far as is known."""
        return _several(self.conninfo) or (self.pool is not None and self.pool.changes)


def read(settings: Settings) -> Address:
    """What the URL says. Nothing is connected. No error shows a part of the URL that could be a password."""
    try:
        parts = urlsplit(settings.url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise BadUrl(f"The URL can't be read. {FORM} {ESCAPED}") from None
    if parts.netloc.count("@") > 1 or "@" in parts.path or parts.fragment:  # or a part of the password is shown as the host
        raise BadUrl(f"The URL holds an @ or a # that it should not. {FORM} {ESCAPED}")
    ours = {name: value for name, value in given if name in _OPTIONS}
    theirs = [(name, value) for name, value in given if name not in _OPTIONS]
    bare = f"postgresql://{parts.netloc}{parts.path}?{urlencode(theirs, quote_via=quote)}"
    try:
        conninfo = conninfo_to_dict(bare)
    except psycopg.ProgrammingError:
        raise BadUrl(
            f"The URL has an option that neither bide nor libpq knows, or can't be read. {FORM} The options of bide are "
            f"{', '.join(_OPTIONS)}. {ESCAPED}"
        ) from None
    namespace = ours.get("namespace", settings.namespace)
    if settings.namespace not in (DEFAULT, namespace):
        raise ConfigError(
            f"The URL's namespace is {namespace}, and the queue's is {settings.namespace}: name it in one of the two places."
        )
    database = unquote(parts.path.lstrip("/"))
    pool = None
    if settings.client is not None:
        if parts.netloc or parts.path or theirs:
            raise BadUrl(
                "The client knows its server, so the URL beside client= names none: write postgres:// or, with options of "
                "bide, postgres://?namespace=shop."
            )
        pool = Pool(settings.client)
        conninfo = {} if pool.changes else pool.conninfo()
        database = str(conninfo.get("dbname") or "")
    _check_servers(conninfo)
    return Address(
        shown=f"postgres://{','.join(_hosts(conninfo))}/{database}",
        conninfo=conninfo,
        pool=pool,
        namespace=namespace,
        schema=schema_of(namespace),
        wake=_one_of("wake", ours.get("wake", "auto"), ("auto", "listen", "poll")),
        migrate=_YES_NO[_one_of("migrate", ours.get("migrate", "1"), tuple(_YES_NO))],
        timeout=_number("timeout", ours.get("timeout", "5"), 0.1, 600),
        connections=int(_number("connections", ours.get("connections", "10"), 1, 1_000)),
    )


def _check_servers(conninfo: Mapping[str, Any]) -> None:
    """Of several servers, libpq takes one that is of this kind."""
    if conninfo.get("target_session_attrs", "any") not in _WRITABLE:
        raise ConfigError(
            "target_session_attrs must be read-write, primary or any, as bide writes. Leave it out: of several servers, bide "
            "takes the primary."
        )


def _several(conninfo: Mapping[str, Any]) -> bool:
    return "," in f"{conninfo.get('host', '')}{conninfo.get('hostaddr', '')}"


def _hosts(conninfo: Mapping[str, Any]) -> list[str]:
    """The servers that a URL names, with their ports. The text in place of a port may be a part of a password."""
    names = str(conninfo.get("host") or "").split(",")
    ports = str(conninfo.get("port") or "").split(",")
    if any(port and not (port.isascii() and port.isdecimal() and 0 < int(port) < 65_536) for port in ports):
        raise BadUrl(f"A port is not a number from 1 to 65535. {FORM} {ESCAPED}")
    if len(ports) == 1:
        ports *= len(names)
    if len(ports) != len(names):
        raise BadUrl("There are several servers: give each its port, as in postgres://one:5432,two:5432/database.")
    names = [f"[{name}]" if ":" in name else name for name in names]
    return [f"{name}:{port}" if port else name for name, port in zip(names, ports, strict=True)]


def schema_of(namespace: str) -> str:
    """A namespace is a schema of its own: `bide`, or `bide_` and the namespace's name."""
    schema = namespace if namespace == DEFAULT else f"{DEFAULT}_{namespace}"
    if len(schema.encode()) > LONGEST_NAME or not re.fullmatch(r"[A-Za-z0-9._-]+", schema):
        raise ConfigError(
            f"In PostgreSQL a namespace has at most {LONGEST_NAME - len(DEFAULT) - 1} characters of A-Z a-z 0-9 . _ -, since "
            "it names a schema: choose a shorter one."
        )
    return schema


def _one_of(name: str, value: str, known: tuple[str, ...]) -> str:
    if value not in known:
        raise BadUrl(f"The URL's option {name} must be one of {', '.join(known)}.")
    return value


def _number(name: str, value: str, least: float, most: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not least <= number <= most:
        raise BadUrl(f"The URL's option {name} must be a number from {least:g} to {most:g}.")
    return number


def _told(given: Any) -> Any:
    try:
        found = given() if callable(given) else given
    except Exception as error:  # such as a service for passwords that is down; its text may be secret
        raise Unavailable(
            f"The pool's function for its conninfo or kwargs raised {type(error).__name__}, so nothing was done."
        ) from error
    if inspect.iscoroutine(found):
        found.close()
    if inspect.isawaitable(found):
        raise ConfigError("The pool's conninfo or kwargs is an async function: give the pool one that is not async.")
    return found


_NEEDED = {
    "default_transaction_isolation": "read committed",  # others would refuse what two do at the same time
    "standard_conforming_strings": "on",
    "array_nulls": "on",
}
LOOK = "select pg_catalog.pg_backend_pid(), pg_catalog.current_setting('server_encoding'), " + ", ".join(
    f"pg_catalog.current_setting('{name}')" for name in _NEEDED
)


def settings_for(shown: str, found: Sequence[str], *, pooled: bool) -> str:
    """What to set for each connection, in libpq's form. Through a pooler nothing can be set for good."""
    encoding, *values = found
    if encoding not in _ENCODINGS:
        raise ConfigError(
            f"{shown} has the encoding {encoding}, in which not every text can be stored: create a database with "
            "`create database … encoding 'UTF8' template template0`."
        )
    odd = {name: right for (name, right), value in zip(_NEEDED.items(), values, strict=True) if value != right}
    if odd and pooled:
        told = " and ".join(f"`alter role … in database … set {name} = '{right}'`" for name, right in odd.items())
        raise ConfigError(f"{shown}: behind a pooler bide needs {told} for its user, since other values are set there.")
    return " ".join("-c {}={}".format(name, right.replace(" ", "\\ ")) for name, right in odd.items())
