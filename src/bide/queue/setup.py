"""What a queue and its twin of the other colour have in common; and what their engine can't take is refused."""

import os
import time
from collections.abc import Sequence

from bide.clock import Clock
from bide.core import options
from bide.core.codec import JSON, MAX_BODY, Codec
from bide.core.times import MAX_DELAY_MS, check_longest, duration_ms
from bide.engines import registry
from bide.engines.base import Capabilities, NewMessage, Settings
from bide.engines.guard import Rules
from bide.engines.guard.able import others_can
from bide.engines.guard.hooks import Hook
from bide.errors import BadOption, BadUrl, Unsupported
from bide.logs import Log
from bide.queue.deliveries import DEPENDS
from bide.queue.envelope import Envelope
from bide.queue.events import Subscriptions, of_process
from bide.queue.later import Later
from bide.queue.outbox import check
from bide.queue.run.call import Middleware
from bide.queue.schedules.definition import Schedules
from bide.queue.tasks.definition import Tasks
from bide.types import Duration

_log = Log("bide.queue")
UNNAMED = "$BIDE_URL"
"""In place of a URL: the one in this environment variable, or else the file bide.db in the current folder."""


class Setup:
    def __init__(
        self,
        url: str,
        *,
        namespace: str = "bide",
        client: object | None = None,
        clock: Clock | None = None,
        dead_for: Duration = "30d",
        dead_max: int = 100_000,
        confirm: str = "memory",
        outbox: str | None = None,
        codec: Codec = JSON,
        max_body: int = MAX_BODY,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self.clock: Clock | None = clock
        self.hooks: Sequence[Hook] = hooks
        self.max_body: int = options.count(max_body, "max_body", 2**30)
        self.tasks: Tasks = Tasks()
        self.schedules: Schedules = Schedules()
        self.moved_by: int | None = None  # the thread whose test has moved it elsewhere
        self.middleware: tuple[Middleware, ...] = ()  # of time travel; a worker has its own
        self.envelope: Envelope = Envelope(codec, self.max_body, self.now_ms, self.tasks.attempts, self.tasks.rules.lives)
        chosen = _chosen(url, client)
        self.settings: Settings = Settings(
            url=_default() if chosen is None else chosen,
            named=chosen is not None,
            namespace=_namespace(namespace),
            client=client,
            clock=clock,
            dead_for=duration_ms(dead_for, "dead_for"),
            dead_max=options.count(dead_max, "dead_max", 2**40),
            confirm=options.confirm(confirm),
        )
        self.subscriptions: Subscriptions = of_process.has(Subscriptions())
        self.source: registry.Source = registry.source(self.settings, hooks, self.subscriptions.switch)
        self.later: Later = Later(self.source, self.now_ms, self.tasks.rules.most)
        self.outbox: registry.Source | None = None if outbox is None else _outbox(outbox, self.settings.namespace)

    def now_ms(self) -> int:
        """This machine's idea of the time: for defaults and bounds only, the engine's clock is the judge."""
        return (self.clock.now_ns() if self.clock is not None else time.time_ns()) // 1_000_000


def _chosen(url: str | None, client: object | None) -> str | None:
    """None: neither the program nor the environment names one."""
    if url is None:
        raise BadUrl(
            "The URL is None. If it comes from an environment variable, that variable is not set: set it, or leave the URL out "
            "to use $BIDE_URL, or else the file bide.db in the current folder."
        )
    if url != UNNAMED:
        return url
    if client is not None:
        raise BadOption(
            "client= needs the engine's URL beside it, e.g. Queue('redis://', client=…), to say which engine it is for."
        )
    return of_environment()


def of_environment() -> str | None:
    found = os.environ.get("BIDE_URL")
    if found is not None and not found.strip():
        raise BadUrl("$BIDE_URL is empty. Set it to the queue's URL, or unset it: then it is the file bide.db in this folder.")
    return found


def _default() -> str:
    path = os.path.abspath("bide.db")
    _log.info("No URL and no $BIDE_URL: the queue is the SQLite file %s", path)
    return f"sqlite:///{path}"


def _outbox(url: str, namespace: str) -> registry.Source:
    source = registry.source(Settings(url=url, namespace=namespace))
    check(joins=source.capabilities.transactional, shown=source.shown)
    return source


def _namespace(value: str) -> str:
    try:
        return options.topic(value)
    except ValueError:
        raise BadOption("The namespace is 1 to 128 characters of A-Z a-z 0-9 . _ - as in 'shop'.") from None


def takes_all(can: Capabilities) -> bool:
    """Whether there is nothing to refuse."""
    return Rules(can, "").takes_all and can.results and can.inspect


def refuse(setup: Setup, messages: Sequence[NewMessage]) -> None:
    """Raises Unsupported, or BadTime for a delay that is too long for the engine."""
    can, shown = setup.source.capabilities, setup.source.shown
    Rules(can, shown).check_messages(messages)
    if can.max_delay < MAX_DELAY_MS:
        now = setup.now_ms()
        for each in messages:
            if each.at is not None:
                check_longest(each.at - now, can.max_delay)
    if not (can.results and can.cancel) and any(DEPENDS in each.headers for each in messages):
        raise Unsupported(f"{shown} lets no message wait for others: leave depends_on= out. {others_can('results', 'cancel')}")
    for topic in {each.topic for each in messages}:
        if not can.results and topic in setup.tasks.keeps:
            raise Unsupported(f"{shown} keeps no results: leave out keep= of the task for {topic}. {others_can('results')}")
        if not can.inspect and topic in setup.tasks.rules.most:
            raise Unsupported(f"{shown} can't count messages: leave out most_pending= of {topic}. {others_can('inspect')}")
