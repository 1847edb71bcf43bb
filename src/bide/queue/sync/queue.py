# Generated from ../aio/queue.py by tools/unasync.py; change that file instead.
"""The queue's verbs, as users call them: arguments are checked, the session is asked, answers are unwrapped."""

from collections.abc import Generator, Iterable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Never, Self

from bide.blocking import Apart
from bide.clock import Clock
from bide.core import options
from bide.core.codec import JSON, MAX_BODY, Codec
from bide.core.times import duration_ms, lease_ms
from bide.engines.base import MAX_BATCH, Capabilities, Finding
from bide.engines.guard.hooks import Hook
from bide.errors import BadOption, BadTime
from bide.queue.envelope import move, ref, room_wait
from bide.queue.events import Events
from bide.queue.setup import UNNAMED, Setup
from bide.queue.sync.delivery import Delivery
from bide.queue.sync.locks import Lock
from bide.queue.sync.many import LaterVerbs, ManyVerbs, ResultVerbs
from bide.queue.sync.receive import listen
from bide.queue.sync.session import Session
from bide.queue.sync.tasks import ScheduleVerbs, TaskVerbs
from bide.queue.sync.topics import TopicVerbs
from bide.queue.tasks.habits import MESSAGES, no_option
from bide.types import (
    CancelResult,
    Duration,
    IfExists,
    Info,
    Outgoing,
    Priority,
    RescheduleResult,
    Sent,
)


class Verbs(TopicVerbs, ManyVerbs, TaskVerbs, ResultVerbs, ScheduleVerbs, LaterVerbs):
    """All that Queue can do; whole topics, many messages, tasks, results, schedules and later sends are with its bases."""

    def __init__(
        self,
        url: str = UNNAMED,
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
        """Make a queue for a URL: `sqlite:///bide.db`, `redis://host`, `memory://`. It connects on first use.

        - url: without one, $BIDE_URL, or else the file bide.db in the current folder.
        - namespace: queues with the same namespace share their messages.
        - client: your own client, if the engine takes one.
        - clock: for tests, such as ManualClock().
        - dead_for, dead_max: how long dead letters are kept, and how many in a topic.
        - confirm: Redis: what every change waits for: "memory" for nothing more, "aof" for the disk, "replicas:1" for so many
          replicas. What is not confirmed in time raises ConfirmTimeout.
        - outbox: the URL of your application's own database, if this queue's engine can't join a transaction there. A send with
          `connection=` is then kept in that database until it is committed, and handed on by a worker or by `relay`.
        - codec: how bodies are encoded; JSON by default. max_body: the largest body, in bytes.
        - hooks: objects that are called before and after every engine call.

        Raises ConfigError for a URL that can't be used, BadOption for an option that can't be used.
        """
        setup = Setup(
            url,
            namespace=namespace,
            client=client,
            clock=clock,
            dead_for=dead_for,
            dead_max=dead_max,
            confirm=confirm,
            outbox=outbox,
            codec=codec,
            max_body=max_body,
            hooks=hooks,
        )
        self.session: Session = Session(setup)

    @classmethod
    def _of(cls, setup: Setup) -> Self:
        """Another queue of the same place, options and tasks, with its own connections."""
        made = cls.__new__(cls)
        made.session = Session(setup)
        return made

    @property
    def capabilities(self) -> Capabilities:
        """What this queue's engine can do."""
        return self.session.setup.source.capabilities

    def examine(self) -> Sequence[Finding]:
        """Check the server or file, and return what `bide doctor` prints. Nothing is changed."""
        return self.session.setup.source.examine()

    def __reduce__(self) -> str:
        raise TypeError(
            "A queue can't be pickled, since it has connections. Make one in each process, or import the module that has it: a "
            "forked process may go on with it."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.session.setup.source.shown}>"

    def open(self) -> None:
        """Connect now, rather than on first use. Safe to call again.

        Call it where a process starts, before the first transaction that a call joins with `connection=`: such a call then
        needs no other connection than the transaction's own. Raises Unavailable, ConfigError and SchemaMismatch.
        """
        self.session.ready()

    def close(self) -> None:
        """Close the engine's connections, after running sends have ended. A closed queue can't be used again.

        What `later` took is sent before, as far as that is possible in five seconds.
        """
        later = self.session.setup.later
        if later.runs:
            Apart(later.close).done()
        self.session.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def events(self) -> Events:
        """What has happened to messages, for those who only observe: `queue.events.subscribe(…)`. Sync and async share it."""
        return Events(self.session.setup.subscriptions)

    # sending, and what was sent

    def send(
        self,
        topic: str,
        body: object = None,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        key: str | None = None,
        if_exists: IfExists = "keep",
        priority: Priority = "normal",
        expires_in: Duration | None = None,
        max_attempts: int | None = None,
        headers: Mapping[str, str] | None = None,
        operation: str | None = None,
        max_wait: Duration | None = None,
        unique_for: Duration | None = None,
        connection: object | None = None,
        depends_on: Iterable[str | Sent] | None = None,
        deadline: Duration | None = None,
        **others: Never,
    ) -> Sent:
        """Send a message that is due now, after a `delay`, or `at` an aware datetime.

        - key: your name for the message until it ends. `if_exists` says what to do if another message holds it.
        - max_wait: with if_exists="later", the message is due at the latest this long after the first of these sends.
        - unique_for: other sends with unique_for and this key do nothing for so long, also when the message has ended.
        - expires_in: drop the message if nobody received it this long after its due time. If its topic says so too, the shorter
          one counts.
        - max_attempts: 3 by default.
        - operation: within 10 minutes, sends with the same operation, topic and key act once and get the first answer.
          OutcomeUnknown has the one to use.
        - connection: join the caller's transaction, if the engine can.
        - depends_on: other messages, of tasks with keep=. This one is due when all of them are done, or else at its `deadline`:
          a day from now by default.

        Raises BadMessage for an argument that can't be used, Exists with if_exists="error", EngineError if the engine fails.
        """
        if others:
            raise BadOption(no_option(min(others), MESSAGES))
        new = self.session.setup.envelope.message(
            topic,
            body,
            delay=delay,
            at=at,
            key=key,
            if_exists=if_exists,
            priority=priority,
            expires_in=expires_in,
            max_attempts=max_attempts,
            headers=headers,
            operation=operation,
            max_wait=max_wait,
            unique_for=unique_for,
            depends_on=depends_on,
            deadline=deadline,
        )
        return self.session.put(new, connection)

    def send_many(
        self,
        topic: str,
        items: Iterable[Outgoing | object],
        *,
        operation: str | None = None,
        connection: object | None = None,
        wait: Duration | None = None,
    ) -> list[Sent]:
        """Send many messages: bodies, or Outgoing(…) with their own options. Returns a result for each, in order.

        All are checked before the first is sent. They are sent in batches of 1,000. If a later batch fails, PartlySent has the
        accepted ones; you can send all again with the same `operation`, if the engine remembers operations. With `connection=`,
        all are part of the caller's transaction.

        SQLite, PostgreSQL and memory accept a batch completely or not at all. Redis and RabbitMQ may accept a part of it: then
        OutcomeUnknown has in `operations` what to send each message again with, or on RabbitMQ in `answers` those accepted.

        If the topic has most_pending and no room for all, QueueFull is raised and none is sent. With `wait`, they are sent in
        parts as there is room, which is waited for so long each time.
        """
        patience = room_wait(wait, connection)
        new = self.session.setup.envelope.messages(topic, items, operation)
        return self.session.put_many(new, connection, wait=patience)

    def cancel(
        self,
        message: str | Sent | None = None,
        *,
        topic: str | None = None,
        key: str | None = None,
        connection: object | None = None,
    ) -> CancelResult:
        """Cancel a pending message, by its id, or by topic and key. CANCELLED means that it will never be delivered.

        connection: join the caller's transaction, if the engine can. The result takes effect with its commit.
        """
        return self.session.cancel(ref(message, topic, key), connection)

    def reschedule(
        self,
        message: str | Sent | None = None,
        *,
        topic: str | None = None,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        by: Duration | None = None,
        connection: object | None = None,
    ) -> RescheduleResult:
        """Give a pending message a new time: after a `delay` from now, `at` an instant, or later `by` so much than it was due.

        MOVED means that it is due then, and only then. A message can't be moved beyond a hundred years from now.

        connection: join the caller's transaction, if the engine can. The result takes effect with its commit.
        """
        new = move(ref(message, topic, key), delay, at, by, self.session.setup.now_ms)
        return self.session.reschedule(new, connection)

    def get(self, message: str | Sent | None = None, *, topic: str | None = None, key: str | None = None) -> Info | None:
        """Return what is stored about a message; None if it has ended."""
        return self.session.get(ref(message, topic, key))

    def relay(self, *, wait: bool = True) -> int:
        """Hand on what was sent into the outbox, until the queue is closed; workers of this queue do so by themselves.

        With wait=False, only what has been committed. Returns how many messages that were: also those that had expired or were
        refused, but not those that stay in the outbox.
        """
        return self.session.relay(wait=wait)

    # receiving

    def receive(
        self, *topics: str, limit: int = 1, wait: Duration = 0, linger: Duration = 0, lease: Duration = "30s"
    ) -> list[Delivery]:
        """Receive up to `limit` messages that are due. With `wait`, wait that long for the first, and with `linger` that long
        for more of them.

        The leases are not renewed: end each delivery before its `lease` ends, or extend() it.
        """
        names = options.topics(topics)
        most, held, patience = options.count(limit, "limit", MAX_BATCH), lease_ms(lease), duration_ms(wait, "wait")
        longer = duration_ms(linger, "linger")
        if 2 * longer > held:
            raise BadTime("linger is over half of the lease: the first messages would be lost before you had them.")
        receiver = self.session.receiver()
        return receiver.take(names, most, held, patience / 1000, linger=longer / 1000)

    def listen(self, *topics: str, limit: int = 10, lease: Duration = "15s") -> Generator[Delivery, None, None]:
        """Yield messages as they fall due, until the queue is closed: `for d in queue.listen("t"): with d: …`

        You hold at most `limit` deliveries at once. A thread renews each lease until its delivery ends or is dropped.
        """
        names = options.topics(topics)
        return listen(self.session.receiver, names, options.count(limit, "limit", MAX_BATCH), lease_ms(lease))

    def lock(self, name: str, *, ttl: Duration = "30s", wait: Duration = 0) -> Lock:
        """Hold a lock: `with queue.lock("order:42") as lock:`. One holder at a time, over all processes.

        - ttl: how long a holder that dies keeps others out. A thread renews the lock while it is held.
        - wait: how long to wait for another holder. Those who wait come in the order in which they came.

        Raises Locked if somebody else holds it, LockLost at the end if it was lost, and Unsupported if the engine has no locks.
        """
        return Lock(self.session, name, ttl, wait)
