"""Reads the part of a Redis URL behind the question mark: what the queue is asked to do, and its TLS.

No error here shows a value, as it may be a piece of a password that was not encoded; only the paths of files are shown.
"""

import contextlib
import difflib
import os
import re
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

from bide.core import options
from bide.errors import BadTopic, BadUrl, ConfigError

Wake: TypeAlias = Literal["list", "poll", "expiry"]
ENCODE = "In a user name, password, path or option write % as %25, @ as %40, / as %2F, ? as %3F, # as %23 and : as %3A."

_NAMES = ("db", "namespace", "shards", "wake", "allow_eviction", "timeout", "connect_timeout")
_FILES = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
_TLS_NAMES = (*_FILES, "verify", "ssl_cert_reqs", "ssl_check_hostname")
_KNOWN = (*_NAMES, *_FILES, "verify")
_ALIASES = {theirs: ours for ours, theirs in _FILES.items()}
_MEANT = {"socket_timeout": "timeout", "socket_connect_timeout": "connect_timeout"}
_YES_NO = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}


def split(text: str) -> dict[str, str]:
    """The options by the names that are used here; unknown ones and those that are said twice are refused."""
    found: dict[str, str] = {}
    for number, part in enumerate(text.split("&") if text else [], 1):
        given, equals, value = part.partition("=")
        name = _ALIASES.get(given, given)
        if name not in _NAMES + _TLS_NAMES:
            raise BadUrl(_unknown(given, number))
        if not equals or not value:
            raise BadUrl(f"The URL's option {name} has no value: write {name}=… or leave it out.")
        if name in found:
            raise BadUrl(f"The URL gives its option {name} twice: leave one of them out.")
        found[name] = decoded(value)
    return found


def _unknown(name: str, number: int) -> str:
    known = f"There is: {', '.join(_KNOWN)}."
    if name in ("username", "password"):
        return f"{name} is no option: write redis://user:password@host, or unix://user:password@/path/to.sock."
    close = [_MEANT[name]] if name in _MEANT else difflib.get_close_matches(name, _NAMES + _TLS_NAMES, 1, 0.7)
    if close:  # only then the name is shown: what is like no option at all may be a piece of a password
        return f"The URL's option {name} is not known. Is it {close[0]}? {known}"
    return f"The URL's option number {number} is not known. {known}"


def decoded(text: str) -> str:
    """Without percent-encoding. A plus stays one, as it does in a path."""
    plain = unquote(text, errors="replace")
    if "\ufffd" in plain:
        raise BadUrl(f"The URL holds a percent-encoding that is not UTF-8. {ENCODE}")
    return plain


def decoded_path(text: str) -> str:
    path = decoded(text)
    if not path.isprintable():
        raise BadUrl("The URL holds a path with characters that can't be shown: rename the file.")
    return path


def number(text: str | None, name: str, least: int, most: int) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,10}", text, re.ASCII) or not least <= int(text) <= most:
        raise BadUrl(f"The URL's {name} can't be read: give a whole number from {least} to {most}.")
    return int(text)


def wishes(values: Mapping[str, str]) -> dict[str, Any]:
    """What is said of how the queue works, by the names of Address; what is not said is not in it."""
    wake = values.get("wake")
    if wake not in (None, "list", "poll", "expiry"):
        raise BadUrl("The URL's option wake can't be read: give one of list, poll, expiry.")
    allow_eviction = values.get("allow_eviction")
    if allow_eviction not in (None, "0", "1"):
        raise BadUrl("The URL's option allow_eviction can't be read: give 0 or 1.")
    said = {
        "shards": number(values.get("shards"), "option shards", 1, 64),
        "wake": wake,
        "allow_eviction": None if allow_eviction is None else allow_eviction == "1",
        "timeout": _seconds(values, "timeout"),
        "connect_timeout": _seconds(values, "connect_timeout"),
    }
    return {name: value for name, value in said.items() if value is not None}


def _seconds(values: Mapping[str, str], name: str) -> float | None:
    text = values.get(name)
    if text is None:
        return None
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,6})?", text, re.ASCII) or not 0.1 <= float(text) <= 600:
        raise BadUrl(f"The URL's option {name} can't be read: give seconds from 0.1 to 600, as in {name}=5.")
    return float(text)


def namespace(values: Mapping[str, str], asked: str, default: str) -> str:
    """The URL's, else the queue's; two that differ would be a guess."""
    given = values.get("namespace")
    if given is None:
        return asked
    with contextlib.suppress(BadTopic):  # its text shows the value, and an error raised here would still refer to it
        options.topic(given)
        if asked not in (default, given):
            raise ConfigError(f"The URL's namespace is not the queue's, which is {asked}: name it in one of the two places.")
        return given
    raise BadUrl("The URL's namespace can't be read: give 1 to 128 characters of A-Z a-z 0-9 . _ - as in namespace=shop.")


def names_tls(values: Mapping[str, str]) -> bool:
    return any(name in values for name in _TLS_NAMES)


def tls(values: Mapping[str, str], shown: Callable[[str], str]) -> tuple[dict[str, Any], str]:
    """What redis-py's connections with TLS take, and a note when it is weak. `shown` keeps a secret out of a path."""
    if ("cert" in values) != ("key" in values):
        raise BadUrl("The URL names one of cert and key: give both, as the server asks for a pair, or neither.")
    for name in _FILES:
        path = values.get(name)
        if path is not None and not (path.isprintable() and os.path.isfile(path)):
            raise ConfigError(f"The file of the URL's option {name} is not there: {shown(ascii(path))}. Correct its path.")
    verify = _verify(values)
    taken: dict[str, Any] = {theirs: values[ours] for ours, theirs in _FILES.items() if ours in values}
    taken["ssl_cert_reqs"] = "none" if verify == "none" else "required"
    taken["ssl_check_hostname"] = verify == "full"
    return taken, _UNCHECKED if verify == "none" else ""


_UNCHECKED = "the server's certificate is not checked (verify=none), so anybody on the way can read and change messages"


def _verify(values: Mapping[str, str]) -> str:
    verify = values.get("verify")
    theirs = values.get("ssl_cert_reqs"), values.get("ssl_check_hostname")
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
