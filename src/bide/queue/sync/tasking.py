# Generated from ../aio/tasking.py by tools/unasync.py; change that file instead.
"""The queue's verbs that say what a topic is for: the task that handles its messages, and rules for what is sent to it."""

from collections.abc import Callable, Sequence
from typing import Any, Unpack, overload

from bide.core import options
from bide.core.backoff import USUAL, Backoff
from bide.errors import ConfigError
from bide.queue.bound import P, R
from bide.queue.sync.session import Session
from bide.queue.task import A, BatchTask, KeepingTask, T, Task
from bide.queue.tasks.definition import Definition, TaskOptions, Unknown
from bide.queue.tasks.failing import Errors, OnDead
from bide.queue.tasks.habits import TASKS, instead
from bide.queue.tasks.limits import OnConflict
from bide.queue.tasks.overdue import CatchUp
from bide.queue.topic_rules import rule
from bide.types import Duration


class TaskVerbs:
    """What Queue can do with the code of an application."""

    session: Session

    @overload
    def task(
        self, topic: str | None = None, *, batch: None = None, keep: None = None, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], Task[P, R]]: ...
    @overload
    def task(
        self, topic: str | None = None, *, batch: None = None, keep: Duration, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[P, R]], KeepingTask[P, R]]: ...
    @overload
    def task(
        self, topic: str | None = None, *, batch: int, linger: Duration = 0, **options: Unpack[TaskOptions]
    ) -> Callable[[Callable[[list[T]], A]], BatchTask[T, A]]: ...
    def task(
        self,
        topic: str | None = None,
        *,
        aliases: Sequence[str] = (),
        max_attempts: int = options.MAX_ATTEMPTS,
        backoff: Backoff = USUAL,
        timeout: Duration | None = None,
        unknown: Unknown = "retry",
        retry_for: Errors | None = None,
        no_retry_for: Errors = (),
        on_dead: OnDead | None = None,
        concurrency: int | None = None,
        rate: str | None = None,
        per: str | None = None,
        lock: str | None = None,
        on_conflict: OnConflict = "wait",
        lock_wait: Duration = "10m",
        lock_delay: Duration = "5s",
        expires_in: Duration | None = None,
        most_pending: int | None = None,
        catch_up: CatchUp = "all",
        keep: Duration | None = None,
        batch: int | None = None,
        linger: Duration = 0,
        **others: object,
    ) -> Callable[[Callable[..., Any]], Task[..., Any] | BatchTask[Any, Any]]:
        """Make a function the handler of a topic: `@queue.task("order.cancel")`.

        A worker calls it with the arguments that were sent. The function may be sync or async.

        - topic: "module.function" by default.
        - aliases: other topics that it handles too, such as an earlier name.
        - backoff: the delays between attempts, such as exponential("1s", cap="10m"), or a function from the number of the
          failed attempt to a delay.
        - timeout: how long an attempt may take; unlimited by default.
        - unknown: what to do with arguments that the function does not know. "retry": the attempt fails, because another worker
          may run a newer release. "ignore": drop these arguments.
        - retry_for: errors that are worth another attempt; all by default. no_retry_for: errors that are not. A message that
          fails with any other becomes a dead letter at once.
        - on_dead: called with the delivery and the reason, before its message becomes a dead letter.
        - concurrency: how many of its messages run at once, over all workers. rate: how many begin, such as "100/m".
        - per: count these for each value of arguments, such as "{user}".
        - lock: run under the lock of this name, such as "order:{order}", which tasks and `queue.lock` share.
        - on_conflict: what to do with a message whose lock is held. "wait": call it when the lock is free, and bury it after
          `lock_wait`. "defer": try again after `lock_delay`. "error": bury it at once. None of these counts as an attempt.
        - expires_in: drop its messages if no worker received them this long after their due time. The shorter one of this and
          the send's own counts. `missed` of a schedule decides for what it plans.
        - most_pending: how many messages of each of its topics may be scheduled or ready. A send beyond that raises QueueFull.
        - catch_up: what to do with a message that is over a minute late, as after an outage. "all": call it. "latest": leave it
          out if a newer one is due too, or of each value of `per`. "10/s": give it a new time, so that no more fall due then.
        - batch: call the function once for up to this many messages. It takes one list; each message is an item of it. It
          returns a Failed for each item that failed.
        - linger: how long the first message of a batch waits for others. By default a batch is what is due already.
        - keep: keep what the function returns for this long, for `sent.result` and for messages that depend on it.

        Raises ConfigError for a function that can't be a task, and for a topic that has another function.
        """

        if callable(topic):
            raise ConfigError("Write @queue.task() with parentheses, or with a topic: @queue.task('order.cancel').")
        for other in others:
            raise ConfigError(f"{other} is no option of a task.{instead(other, TASKS)}")

        def decorate(function: Callable[..., Any]) -> Task[..., Any] | BatchTask[Any, Any]:
            self.session.setup.schedules.refuse_below(function)
            definition = Definition(
                function,
                topic=topic,
                aliases=aliases,
                max_attempts=max_attempts,
                backoff=backoff,
                timeout=timeout,
                unknown=unknown,
                retry_for=retry_for,
                no_retry_for=no_retry_for,
                on_dead=on_dead,
                concurrency=concurrency,
                rate=rate,
                per=per,
                lock=lock,
                on_conflict=on_conflict,
                lock_wait=lock_wait,
                lock_delay=lock_delay,
                expires_in=expires_in,
                most_pending=most_pending,
                catch_up=catch_up,
                batch=batch,
                linger=linger,
                keep=keep,
            )
            kind = BatchTask if batch is not None else Task if keep is None else KeepingTask
            return kind(self.session, self.session.setup.tasks.add(definition))

        return decorate

    def topic(self, name: str, *, expires_in: Duration | None = None, most_pending: int | None = None) -> None:
        """Say rules for what this program sends to a topic, such as one whose task is part of another program.

        - expires_in: drop a message if nobody received it this long after its due time. The shortest one of this, the task's
          and the send's own counts.
        - most_pending: raise QueueFull for a send when so many messages are scheduled or ready. The lower one of this and the
          task's counts. Each program counts now and then, so several together may go beyond: see the page on overload.

        The last call for a topic counts, for this queue, its `.sync` and its `.sync`. Nothing is stored.
        """
        self.session.setup.tasks.rules.say(options.topic(name), rule(expires_in, most_pending))
