"""Finds the engine that a URL names, and loads it only then."""

import importlib
import re
from collections.abc import Callable, Sequence
from typing import ClassVar, Protocol

from bide.engines.aio import AsyncEngine
from bide.engines.base import Capabilities, Finding, Settings
from bide.engines.guard.aio import AsyncGuard
from bide.engines.guard.hooks import Hook, Switch, hooks_for
from bide.engines.guard.sync import Guard
from bide.engines.sync import Engine
from bide.errors import BadUrl, ConfigError, MissingExtra, UnknownEngine

_REDIS = ("bide.engines.redis", "redis")
_POSTGRES = ("bide.engines.postgres", "postgres")
_RABBITMQ = ("bide.engines.rabbitmq", "rabbitmq")


class Source(Protocol):
    """One place where messages live, to be opened in either colour, as often as needed."""

    @property
    def capabilities(self) -> Capabilities: ...

    @property
    def shown(self) -> str:
        """What to call this place in logs and banners: no password in it."""

    @property
    def namespace(self) -> str:
        """The one that is used, whether the URL names it or the queue."""

    def aio(self) -> AsyncEngine: ...
    def sync(self) -> Engine: ...

    def examine(self) -> Sequence[Finding]:
        """What an operator should know of this place. Nothing is changed, and nothing is made."""

    def mend(self) -> Sequence[Finding] | None:
        """Set right what can be set right from here; what was done, if anything. None: nothing ever can."""


class Guarded:
    """A place whose engines are guarded, for the hooks that are given and for those who read the log at DEBUG."""

    in_tests: ClassVar[Callable[[Settings, Source], None] | None] = None  # the pytest plugin's, told of each use by a queue

    def __init__(self, plain: Source, hooks: Sequence[Hook] = (), switch: Switch | None = None) -> None:
        self.capabilities: Capabilities = plain.capabilities
        self.shown: str = plain.shown
        self.namespace: str = plain.namespace
        self.plain: Source = plain
        self._hooks = hooks
        self._switch = switch or Switch(Hook())

    def aio(self) -> AsyncEngine:
        return self._switch.added(AsyncGuard(self.plain.aio(), self.shown, hooks_for(self._hooks)))

    def sync(self) -> Engine:
        return self._switch.added(Guard(self.plain.sync(), self.shown, hooks_for(self._hooks)))

    def examine(self) -> Sequence[Finding]:
        return self.plain.examine()

    def mend(self) -> Sequence[Finding] | None:
        return self.plain.mend()


_ENGINES = {
    "memory": ("bide.engines.memory", ""),
    "sqlite": ("bide.engines.sqlite", ""),
    "redis": _REDIS,
    "rediss": _REDIS,
    "unix": _REDIS,
    "redis+sentinel": _REDIS,
    "rediss+sentinel": _REDIS,
    "redis+cluster": _REDIS,
    "rediss+cluster": _REDIS,
    "postgres": _POSTGRES,
    "postgresql": _POSTGRES,
    "amqp": _RABBITMQ,
    "amqps": _RABBITMQ,
}
"""URL scheme: the engine's package, and the extra that brings its driver."""


_SAME = {"pyamqp": "amqp", "rabbitmq": "amqp", "valkey": "redis", "valkeys": "rediss"}
"""What others call a scheme: what it is called here."""


def source(settings: Settings, hooks: Sequence[Hook] = (), switch: Switch | None = None) -> Source:
    """Every engine's package has a `source(settings)` of its own; this calls the right one, and puts the guard before it."""
    scheme = scheme_of(settings.url)
    if scheme not in _ENGINES:
        plain, plus, _ = scheme.partition("+")
        if plus and plain in _ENGINES:  # of SQLAlchemy, such as postgresql+psycopg://
            raise UnknownEngine(f"There is no engine for {scheme}://. bide brings its own driver: write {plain}:// here.")
        if scheme in _SAME:
            raise UnknownEngine(f"There is no engine for {scheme}://. Write {_SAME[scheme]}:// for the same server.")
        known = ", ".join(f"{name}://" for name in _ENGINES)
        raise UnknownEngine(f"There is no engine for {scheme}:// in this release. There is: {known}")
    package, extra = _ENGINES[scheme]
    if settings.confirm != "memory" and package != _REDIS[0]:
        raise ConfigError(f"confirm= is for Redis: leave it out with {scheme}://, and see capabilities.accepted.")
    try:
        engine = importlib.import_module(package)
    except ModuleNotFoundError as missing:
        if not extra:
            raise
        raise MissingExtra(f'{scheme}:// needs the package {missing.name}: pip install "bide[{extra}]"') from missing
    made: Source = engine.source(settings)
    return Guarded(made, hooks, switch)


def scheme_of(url: str) -> str:
    if not isinstance(url, str):
        raise BadUrl(f"The URL is a {type(url).__name__}. Give text such as 'sqlite:///bide.db'.")
    if not url.isprintable() or len(url) > 4_096:
        raise BadUrl("The URL holds characters that can't be shown, or is too long. Give text such as 'sqlite:///bide.db'.")
    scheme, mark, _ = url.partition("://")
    if not mark or not re.fullmatch(r"[a-z][a-z0-9+.-]*", scheme):
        raise BadUrl("The URL does not begin with an engine's name and ://, as in 'sqlite:///bide.db' or 'memory://'.")
    return scheme
