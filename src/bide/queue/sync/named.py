# Generated from ../aio/named.py by tools/unasync.py; change that file instead.
"""What a task does with messages that were sent, by their ids and keys."""

from datetime import datetime

from bide.engines.base import Ref
from bide.errors import BadOption
from bide.queue.bound import Bound, P, R
from bide.queue.envelope import move, ref
from bide.queue.sync.session import Session
from bide.queue.tasks.definition import Definition
from bide.types import CancelResult, Duration, Info, RescheduleResult, SendOptions, Sent


class Named(Bound[P, R]):
    def __init__(self, session: Session, definition: Definition, options: SendOptions | None = None) -> None:
        super().__init__(session, definition, options)
        self._session = session

    def cancel(
        self, message: str | Sent | None = None, *, key: str | None = None, connection: object | None = None
    ) -> CancelResult:
        """Cancel a message by its id or key, if no worker has started it. `connection` as in `queue.cancel`."""
        return self._session.cancel(self._ref(message, key), self._transaction(connection))

    def reschedule(
        self,
        message: str | Sent | None = None,
        *,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
        by: Duration | None = None,
        connection: object | None = None,
    ) -> RescheduleResult:
        """Give a message a new time, by its id or key, if no worker has started it. All else as in `queue.reschedule`."""
        new = move(self._ref(message, key), delay, at, by, self._setup.now_ms)
        return self._session.reschedule(new, self._transaction(connection))

    def get(self, message: str | Sent | None = None, *, key: str | None = None) -> Info | None:
        """Return what is stored about a message, by its id or key; None if it has ended."""
        return self._session.get(self._ref(message, key))

    def _transaction(self, connection: object | None) -> object | None:
        return self._options.get("connection") if connection is None else connection

    def _ref(self, message: str | Sent | None, key: str | None) -> Ref:
        """Which message is meant: it is named by one of the two."""
        if message is None and key is None:
            raise BadOption(f"Say which message: {self.definition.name}.cancel(sent), or {self.definition.name}.cancel(key=…).")
        return ref(message, None if key is None else self.topic, key)
