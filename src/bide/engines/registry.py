"""Finds the engine that a URL names, and loads it only then."""

import importlib
import importlib.util
import re
from typing import Protocol
from urllib.parse import urlsplit

from bide.engines.aio import AsyncEngine
from bide.engines.base import Capabilities, Settings
from bide.engines.sync import Engine
from bide.errors import BadUrl, MissingExtra, UnknownEngine


class Source(Protocol):
    """One place where messages live, to be opened in either colour, as often as needed."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def shown(self) -> str:
        """What to call this place in logs and banners: no password in it."""

    def aio(self) -> AsyncEngine: ...
    def sync(self) -> Engine: ...


_PACKAGES = {"memory": "bide.engines.memory"}
_DRIVERS: dict[str, tuple[str, str]] = {}  # scheme -> the module of its driver, the extra that brings it


def source(settings: Settings) -> Source:
    """Every engine's package has a `source(settings)` of its own; this calls the right one."""
    scheme = scheme_of(settings.url)
    if scheme not in _PACKAGES:
        known = ", ".join(f"{name}://" for name in _PACKAGES)
        raise UnknownEngine(f"There is no engine for {scheme}:// in this release. There is: {known}")
    driver, extra = _DRIVERS.get(scheme, ("", ""))
    if driver and importlib.util.find_spec(driver) is None:
        raise MissingExtra(f'{scheme}:// needs the {driver} package: pip install "bide[{extra}]"')
    made: Source = importlib.import_module(_PACKAGES[scheme]).source(settings)
    return made


def scheme_of(url: str) -> str:
    if not isinstance(url, str):
        raise BadUrl(f"The URL is a {type(url).__name__}. Give text such as 'sqlite:///bide.db'.")
    if not url.isprintable() or len(url) > 4_096:
        raise BadUrl("The URL holds characters that can't be shown, or is too long. Give text such as 'sqlite:///bide.db'.")
    scheme, mark, _ = url.partition("://")
    if not mark or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        raise BadUrl("The URL does not begin with an engine's name and ://, as in 'sqlite:///bide.db' or 'memory://'.")
    return scheme


def redacted(url: str) -> str:
    """A URL fit to be shown: without user, password and query values. What can't be read is not shown at all."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        where = f"{host}:{parts.port}" if parts.port else host
    except ValueError:
        return "(a URL that can't be read)"
    secret = "***@" if parts.username or parts.password else ""
    query = "?" + "&".join(f"{pair.partition('=')[0]}=***" for pair in parts.query.split("&")) if parts.query else ""
    return f"{parts.scheme}://{secret}{where}{parts.path}{query}"
