# Generated from ../aio/calls.py by tools/unasync.py; change that file instead.
"""How the scripts of a shard are run: on which connection, under which number, and again when they came too late."""

from collections.abc import Sequence
from typing import Any

from bide.engines.redis.failures import TooOld, Unanswered, Unpinned
from bide.engines.redis.namespace import Namespace
from bide.engines.redis.script import scripts
from bide.engines.redis.sync.connections import Connection, Connections
from bide.errors import BideError, OutcomeUnknown, Unavailable

TRIES = 3  # of a script that comes too late
LOOKS = ("get", "lease_ends", "leased", "scan", "stats", "time")  # scripts that change nothing


class Calls:
    def __init__(self, number: int, namespace: Namespace, connections: Connections) -> None:
        prefix = namespace.prefix(number)
        self._number = number
        self._keys = (f"{prefix}meta", f"{prefix}-")
        self._namespace = namespace
        self._connections = connections

    def command(self, *args: Any) -> Any:
        """What a command answers that changes nothing."""
        connection = self._connections.take()
        try:
            return connection.command(*args)
        except Unanswered as lost:
            raise Unavailable(str(lost)) from None
        finally:
            self._connections.give(connection)

    def ask(self, verb: str, args: Sequence[Any], now: int | None) -> Any:
        """Run a script that may be run again at will."""
        return self._run(verb, args, now, once=False)

    def do(self, verb: str, args: Sequence[Any], now: int | None) -> Any:
        """Run a script that must act once."""
        return self._run(verb, args, now, once=True)

    def _run(self, verb: str, args: Sequence[Any], now: int | None, *, once: bool) -> Any:
        connection = self._connections.take()
        try:
            return self._timely(connection, verb, args, now, once=once)
        except Unanswered as lost:
            raise (Unavailable if verb in LOOKS else OutcomeUnknown)(str(lost)) from None
        finally:
            self._connections.give(connection)

    def once(self, verb: str, args: Sequence[Any], now: int | None, salt: bytes) -> Any:
        """Run a script that must act once; raises Unanswered, with its number, when it may have."""
        connection = self._connections.take()
        try:
            return self._timely(connection, verb, args, now, once=True, salt=salt)
        finally:
            self._connections.give(connection)

    def in_passing(self, verb: str, args: Sequence[Any]) -> bool:
        """Run a script that is not worth waiting for; False when the server is away."""
        connection = self._connections.take()
        try:
            head = self._head(connection, None, b"", args, once=False)
            connection.run(scripts()[verb], self._keys, head, retry_for=0.0)
        except (BideError, Unanswered, TooOld, Unpinned):
            return False
        finally:
            self._connections.give(connection)
        return True

    def _timely(
        self, connection: Connection, verb: str, args: Sequence[Any], now: int | None, *, once: bool, salt: bytes = b""
    ) -> Any:
        """Run a script; again when it came too late to act, as when we have not heard from the server for long."""
        for _ in range(TRIES):
            if once:
                connection.next_number()
            try:
                head = self._head(connection, now, salt, args, once=once)
                return self._told(connection.run(scripts()[verb], self._keys, head))
            except TooOld as late:  # nothing was done, and now we know what time it is
                self._namespace.hear(late.now)
            except Unpinned:
                self._pin(connection, now)
        shown = self._namespace.address.shown
        raise Unavailable(f"{shown} answers too late for anything to be done. Nothing was done; try again.")

    def _pin(self, connection: Connection, now: int | None) -> None:
        """Have it said how many shards there are, in shard 0 first: whoever counts them otherwise is refused from then on."""
        for number in (0, self._number):
            prefix = self._namespace.prefix(number)
            head = self._head(connection, now, b"", (), once=False)
            self._told(connection.run(scripts()["pin"], (f"{prefix}meta", f"{prefix}-"), head))

    def _head(self, connection: Connection, now: int | None, salt: bytes, args: Sequence[Any], *, once: bool) -> list[Any]:
        """What every script is told first."""
        lane, number = (connection.lane, connection.number) if once else ("", 0)
        until = self._namespace.until(now, connection.retry_for)
        return ["" if now is None else now, self._namespace.known, lane, number, salt, self._namespace.shards, until, *args]

    def _told(self, reply: Any) -> Any:
        self._namespace.hear(int(reply[0]))
        return reply
