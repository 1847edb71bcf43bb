"""Reads a RabbitMQ URL: which brokers and virtual host, and what the queue was asked for."""

import os
import re
import shlex
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from bide.engines.base import Settings
from bide.errors import BadUrl, ConfigError

FORM = "A RabbitMQ URL is amqp://user:password@host:5672/vhost?options, or amqps:// for TLS."
ESCAPED = "In a password write @ as %40, : as %3A, / as %2F, ? as %3F, # as %23 and % as %25; in a vhost write / as %2F."
DEFAULT = Settings(url="").namespace
HEARTBEAT = 8  # seconds: a broker that gives no sign of life for three times as long is taken for lost
_PORTS = {"amqp": 5672, "amqps": 5671}
_FILES = ("cafile", "capath", "certfile", "keyfile")
_TLS = (*_FILES, "no_verify_ssl")  # options of the driver
_OPTIONS = ("namespace", "timeout", "make", "management", "consumer_timeout")
_YES_NO = {"1": True, "0": False}
_NAMESPACE = r"[A-Za-z0-9._-]{1,64}"  # the names of queues have at most 255 bytes


@dataclass(frozen=True)
class Address:
    """Where the messages are."""

    shown: str
    namespace: str
    urls: tuple[str, ...] = field(repr=False)  # one for each broker of a cluster; they hold the password
    user: str
    vhost: str
    timeout: float  # seconds for an answer
    consumer_timeout: float  # seconds for which the broker lets a receiver work on a message
    make: bool  # what is missing on the broker; otherwise that is an error
    management: str | None = field(repr=False)  # where the broker's HTTP API is, if anywhere; may hold a password

    @property
    def place(self) -> tuple[str, ...]:
        """What tells two addresses apart: the same brokers, user, virtual host and namespace are the same place."""
        return (*self.urls, self.namespace)

    @property
    def rights(self) -> str:
        """The command that gives the user all rights that bide needs here."""
        own = "^" + self.namespace.replace(".", r"\.") + ":"
        patterns = (own, f"^({own[1:]}|amq\\.default$)", own)  # to configure, write and read
        return self.ctl(f"set_permissions {shlex.quote(self.user)} {' '.join(map(shlex.quote, patterns))}")

    def ctl(self, command: str) -> str:
        """A command of the broker's operator, for this virtual host."""
        verb, _, words = command.partition(" ")
        scope = f" -p {shlex.quote(self.vhost)}" if self.vhost != "/" else ""
        return f"rabbitmqctl {verb}{scope} {words}".rstrip()


def read(settings: Settings) -> Address:
    """What the URL says. Nothing is connected. No error shows a part of the URL that could be a password."""
    if settings.clock is not None:
        raise ConfigError("The RabbitMQ broker's own clock counts: leave clock= out.")
    if settings.client is not None:
        raise ConfigError("The RabbitMQ engine makes its own connections: leave client= out, and name the broker in the URL.")
    try:
        parts = urlsplit(settings.url)
        given = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError:
        raise BadUrl(f"The URL can't be read. {FORM} {ESCAPED}") from None
    login, _, hosts = parts.netloc.rpartition("@")
    if parts.path == "//":  # as Celery writes it
        raise BadUrl("The URL ends with //. Here the virtual host / is written as one slash or none: amqp://host:5672/.")
    if "@" in login or parts.fragment or parts.path.count("/") > 1:
        raise BadUrl(f"The URL holds an @, a # or a / that it should not. {FORM} {ESCAPED}")
    asked = _options(given)
    tls = {name: asked[name] for name in _TLS if name in asked}
    if tls and parts.scheme != "amqps":
        raise BadUrl(f"The URL has options for TLS, but begins with {parts.scheme}://: write amqps:// or leave them out.")
    for name in _FILES:
        if name in tls and not os.access(tls[name], os.R_OK):
            raise ConfigError(f"The URL's option {name} names no file that this process may read: give its whole path.")
    brokers = [_broker(each, _PORTS[parts.scheme]) for each in (hosts or "localhost").split(",")]
    vhost = unquote(parts.path.removeprefix("/")) or "/"
    options = urlencode({"heartbeat": HEARTBEAT, "name": "bide", **tls})
    urls = [f"{parts.scheme}://{login or 'guest:guest'}@{each}/{quote(vhost, safe='')}?{options}" for each in brokers]
    return Address(
        shown=f"{parts.scheme}://{','.join(brokers)}/{'' if vhost == '/' else quote(vhost, safe='')}",
        namespace=_namespace(asked.get("namespace", settings.namespace), settings.namespace),
        urls=tuple(urls),
        user=unquote(login.partition(":")[0]) or "guest",
        vhost=vhost,
        timeout=_number("timeout", asked.get("timeout", "5"), 0.1, 600),
        consumer_timeout=_number("consumer_timeout", asked.get("consumer_timeout", "1800"), 3, 10**9),
        make=_yes_no("make", asked.get("make", "1")),
        management=_management(asked.get("management")),
    )


def _options(given: list[tuple[str, str]]) -> dict[str, str]:
    """By their names. Unknown ones, those without a value, and those that are given twice are refused."""
    found: dict[str, str] = {}
    for position, (name, value) in enumerate(given, 1):
        if name not in _OPTIONS + _TLS:
            raise BadUrl(f"Option {position} of the URL is not known. There is: {', '.join(_OPTIONS + _TLS)}. {ESCAPED}")
        if not value or name in found:
            raise BadUrl(f"Give the URL's option {name} once, with a value: {name}=…")
        found[name] = value
    return found


def _broker(text: str, port: int) -> str:
    """A host and its port. The text in place of a port may be a part of a password."""
    found = re.fullmatch(r"(?P<host>\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(:(?P<port>\d{1,5}))?", text, re.ASCII)
    if found is None or not 0 < int(found["port"] or port) < 65_536:
        raise BadUrl(f"The URL names a host or a port that can't be. {FORM} {ESCAPED}")
    return f"{found['host']}:{found['port'] or port}"


def _namespace(named: str, asked: str) -> str:
    if asked not in (DEFAULT, named):
        raise ConfigError(f"The URL's namespace is {named}, and the queue's is {asked}: name it in one of the two places.")
    if not re.fullmatch(_NAMESPACE, named, re.ASCII):
        raise ConfigError("In RabbitMQ a namespace has at most 64 characters of A-Z a-z 0-9 . _ -: choose another one.")
    if named.startswith("amq."):
        raise ConfigError("The broker keeps names that begin with amq. for itself: choose another namespace.")
    return named


def _management(text: str | None) -> str | None:
    if text is not None and not re.match(r"https?://[^/]", text):
        raise BadUrl("The URL's option management is the address of the broker's HTTP API, such as http://host:15672.")
    return text


def _yes_no(name: str, value: str) -> bool:
    if value not in _YES_NO:
        raise BadUrl(f"The URL's option {name} must be 1 or 0.")
    return _YES_NO[value]


def _number(name: str, value: str, least: float, most: float) -> float:
    try:
        number = float(value)
    except ValueError:
        number = -1.0
    if not least <= number <= most:
        raise BadUrl(f"The URL's option {name} must be a number of seconds from {least:g} to {most:g}.")
    return number
