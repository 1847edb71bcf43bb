# unasync: ../sync/later.py
"""The queue's verbs for sends that nobody waits for."""

from collections.abc import Mapping
from datetime import datetime
from typing import Never

from bide.blocking import AsyncApart
from bide.core.times import duration_ms
from bide.errors import BadOption
from bide.queue.aio.session import AsyncSession
from bide.queue.tasks.habits import MESSAGES, no_option
from bide.types import Duration, Flushed, IfExists, Priority


class AsyncLaterVerbs:
    """What AsyncQueue can do in the background."""

    session: AsyncSession

    def later(
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
        **others: Never,
    ) -> None:
        """Send a message in the background, and return at once: for code that must not wait, also when the engine is away.

        The options are those of `send`. A delay counts from this call. A thread sends what was taken, all that has gathered in
        one call, and again after an error; nothing is sent twice. Until then it is in this process only: `flush`, `close` and
        the normal end of the process send the rest, and log what could not be sent in five seconds. A process that is killed
        loses it.

        Raises BadMessage for an argument that can't be used, QueueFull when 10,000 messages or 64 MiB wait already, and
        Unavailable when the queue is closed or no thread can be started.
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
        )
        self.session.later(new)

    async def flush(self, wait: Duration = "5s") -> Flushed:
        """Wait until all that `later` took has been sent, at most so long. Returns how many wait, were sent, and were lost."""
        seconds = duration_ms(wait, "wait") / 1000
        return await AsyncApart(lambda: self.session.setup.later.flush(seconds)).done()
