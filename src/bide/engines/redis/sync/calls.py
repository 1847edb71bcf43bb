# Generated from ../aio/calls.py by tools/unasync.py; change that file instead.
"""How the scripts of a shard run: each call is an operation of its connection's lane, and acts once."""

import contextlib
import time
from collections.abc import Sequence
from typing import Any

from bide.engines.redis.confirm import Confirmation, check_disk
from bide.engines.redis.failures import BRIEF, OtherSpread, TooOld, Unanswered, Unconfirmed, Unpinned, other_spread
from bide.engines.redis.namespace import Namespace, check_events, check_eviction
from bide.engines.redis.protocol import Text
from bide.engines.redis.script import LOOKS, scripts
from bide.engines.redis.server import Server, texts
from bide.engines.redis.sync.connections import Connection, Connections
from bide.engines.redis.topology import ShardSpread, plain
from bide.engines.redis.topology import read as read_spread
from bide.errors import BideError, ConfigError, ConfirmTimeout, OutcomeUnknown, Unavailable

SPREAD = 5  # the place of how messages are spread, in what every script is told
TRIES = 5  # of a script that comes too late, or to a shard that has it otherwise
PASSING = frozenset({*LOOKS, "close", "expect", "hear"})  # and those that change nothing which must last
RECEIVING = frozenset(
    {"arrive", "claim", "enter", "expect_results", "extend", "fulfil_results", "keep", "leave", "recall"} | {"spend", "tend"}
)  # what a receiver does: lost by a failover, it is done again, and nobody was promised that it lasts
UNCONFIRMED = PASSING | RECEIVING
PAGES = frozenset({"settle", "requeue", "purge", "purge_dead"})  # of which many follow one another


class Calls:
    """Runs the scripts of one shard."""

    def __init__(self, number: int, namespace: Namespace, connections: Connections, first: "Calls | None" = None) -> None:
        """`first`: those of shard 0, if this is another one."""
        prefix = namespace.prefix(number)
        self._keys = (f"{prefix}meta", f"{prefix}-")
        self._namespace = namespace
        self._first = first
        self._connections = connections
        self._clock = connections.server.clock

    def is_away(self) -> bool:
        """Whether the server does not answer, as far as is known. At times it is asked a question, and not waited for."""
        presence = self._connections.server.presence
        if presence.since and presence.is_to_be_asked():
            self._connections.aside.begin(self._look)
        return presence.silent

    def _look(self) -> None:
        presence = self._connections.server.presence
        hasty = self._connections.server.hasty(presence.asks_for)
        took = self._time_of_answer(hasty)
        if took is not None:
            presence.find(took=took)
        else:
            presence.lose(hasty.presence.excuse if hasty.presence.since else presence.excuse)
            presence.asked()

    def _time_of_answer(self, hasty: Server) -> float | None:
        """Of the second one, as the first question may have waited for a server that stood still. None if there is none."""
        connection, began = Connection(hasty), 0.0
        only_looks = self._connections.server.presence.only_looks  # what changes nothing is answered then, too
        try:
            for _ in range(2):
                began = time.monotonic()
                told = self._told(connection, None)
                with contextlib.suppress(OtherSpread):
                    if only_looks:
                        connection.run(scripts()["close"], self._keys, (*told, ""), retry_for=0.0)
                    else:
                        connection.run(scripts()["time"], self._keys, told, retry_for=0.0)
        except (BideError, Unanswered, TooOld, Unpinned):
            return None
        finally:
            connection.close()
        return time.monotonic() - began

    def command(self, *args: Any, patience: float | None = None, as_write: bool = False) -> Any:
        """The answer to a command that changes nothing. `as_write`: it waits until the server takes writes."""
        connection = self._connections.take()
        try:
            return connection.command(*args, retry_for=patience, as_write=as_write)
        except Unanswered as lost:
            raise Unavailable(str(lost)) from None
        finally:
            self._connections.give(connection)

    def check(self, patience: float | None = None) -> None:
        """Find out once whether the server evicts nothing, and how it tells what is on its disk, if that is asked for.

        Raises ConfigError if it does, or can't. A proxy can't be asked.
        """
        if self._connections.checked:
            return
        address = self._connections.server.address
        if address.wake != "poll":
            check_eviction(address, self.command("INFO", "memory", patience=patience))
            self._prepare_to_confirm(patience)
        if address.wake == "expiry" and (told := self._setting("notify-keyspace-events", patience)) is not None:
            check_events(address, told)
        self._connections.checked = True

    def _prepare_to_confirm(self, patience: float | None) -> None:
        asked = self._connections.confirmation
        if asked is None or not asked.on_disk:
            return
        server = self.command("INFO", "server", patience=patience)
        persistence = self.command("INFO", "persistence", patience=patience)
        told = self._setting("appendfsync", patience)
        fsync = None if told is None else told[1].decode()
        at_once = not check_disk(self._connections.server.shown, _fields(server, persistence), fsync)
        self._connections.confirmation = asked._replace(at_once=at_once)

    def _setting(self, name: str, patience: float | None) -> Any:
        """What the server's configuration says; None: many hosted servers don't tell, so their operator must know."""
        with contextlib.suppress(ConfigError):
            return self.command("CONFIG", "GET", name, patience=patience)
        return None

    def ask(self, verb: str, args: Sequence[Any], now: int | None, *, patience: float | None = None) -> Any:
        """Run a script that may run more than once."""
        return self.do(verb, args, now, once=False, patience=patience)

    def do(
        self,
        verb: str,
        args: Sequence[Any],
        now: int | None,
        *,
        once: bool = True,
        salt: bytes = b"",
        insist: bool = True,
        patience: float | None = None,
        planned: ShardSpread | None = None,
        short: list[str] | None = None,
    ) -> Any:
        """Run a script that must act once. It runs again if it came too late, as after a long silence.

        planned: how messages were spread when this shard was chosen for it. It raises OtherSpread, with nothing done, if that
        is not so any more; else it is done here, however they are spread.

        patience: seconds for which it is repeated while there is no answer, when others are worth more than this one. With a
        salt it raises Unanswered or Unconfirmed, with the operation's number, when it may have acted; if it does not `insist`
        on hearing so for as long as usual, as soon as that.

        short: gets the sentence when it has acted and that was not confirmed, and the answer is given all the same.
        """
        if not self._connections.checked and verb not in PASSING:
            self.check(patience)
        confirmation = self._connections.confirmation
        if confirmation is not None:
            confirmation = self._confirmation(confirmation, verb, args)
        connection, clock, lane = self._connections.take(), self._clock, ""
        try:
            for _ in range(TRIES):
                if once:
                    connection.number += 1
                    lane = connection.lane
                until, spread = clock.until(now, connection.retry_for), self._namespace.told
                if planned is not None and planned is not self._namespace.spread:
                    raise OtherSpread(spread)
                told = (
                    "" if now is None else str(now), str(clock.known), lane, str(connection.number), salt,
                    spread, str(until), *texts(args),
                )  # fmt: skip
                try:
                    reply = connection.run(
                        scripts()[verb],
                        self._keys,
                        told,
                        retry_for=patience,
                        insist=insist and bool(salt),
                        confirmation=confirmation,
                    )
                except TooOld as late:  # it did nothing, and told the time
                    clock.hear(late.now)
                except (Unpinned, OtherSpread) as first:
                    with contextlib.suppress(Unconfirmed):  # it is confirmed with what follows
                        self._tell_spread(connection, first, now, patience)
                else:
                    clock.hear(int(reply[0]), wrote=once)
                    return reply
        except Unconfirmed as done:
            return self._fallen_short(done, short, salted=bool(salt))
        except Unanswered as lost:
            if salt:
                raise
            raise (Unavailable if verb in LOOKS else OutcomeUnknown)(str(lost)) from None
        finally:
            self._connections.give(connection)
        shown = self._connections.server.shown
        raise Unavailable(f"{shown} answers too late for anything to be done. Nothing was done; try again.")

    def _fallen_short(self, done: Unconfirmed, short: list[str] | None, *, salted: bool) -> Any:
        self._connections.short = True
        if short is not None:
            self._clock.hear(int(done.answer[0]), wrote=True)
            short.append(done.sentence)
            return done.answer
        if salted:
            raise done
        raise ConfirmTimeout(done.sentence) from None

    def _confirmation(self, asked: Confirmation, verb: str, args: Sequence[Any]) -> Confirmation | None:
        """How a script is confirmed. While writes are not, ends and pages wait briefly: nobody waits behind them."""
        if verb in UNCONFIRMED:
            return None
        in_pages = verb in PAGES or (verb == "cancel" and args[0] > 1)
        if not in_pages or not self._connections.short:
            return asked
        if not self._connections.asking:
            self._connections.asking = True
            self._connections.aside.begin(self._ask_to_confirm)
        return asked.brief

    def _ask_to_confirm(self) -> None:
        """Find out whether writes are confirmed again, with as much time as usual."""
        connection = self._connections.take()
        try:
            told, asked = self._told(connection, None), self._connections.confirmation
            connection.run(scripts()["time"], self._keys, told, retry_for=BRIEF, confirmation=asked)
            self._connections.short = False
        except (BideError, OtherSpread, Unanswered, Unconfirmed, TooOld, Unpinned):
            return
        finally:
            self._connections.asking = False
            self._connections.give(connection)

    def in_passing(self, verb: str, args: Sequence[Any]) -> bool:
        """Run a script of a caller that does not wait for a server that is away; False when it is."""
        connection = self._connections.take()
        try:
            connection.run(scripts()[verb], self._keys, (*self._told(connection, None), *texts(args)), retry_for=BRIEF)
        except (BideError, OtherSpread, Unanswered, TooOld, Unpinned):
            return False
        finally:
            self._connections.give(connection)
        return True

    def _tell_spread(
        self, connection: Connection, told: Unpinned | OtherSpread, now: int | None, patience: float | None
    ) -> None:
        """Before what was asked for: the shard does not know how messages are spread, or knows it otherwise."""
        if isinstance(told, OtherSpread):
            self._agree(connection, told.found)
        else:
            self._pin(connection, now, patience)

    def _pin(self, connection: Connection, now: int | None, patience: float | None = None) -> None:
        """Store how the shards are spread, in shard 0 first. Clients that have it otherwise are refused from then on."""
        first = self._first
        if first is not None and first._connections is self._connections:
            with contextlib.suppress(Unconfirmed):  # it is confirmed with what follows
                first._pin(connection, now, patience)
        elif first is not None:
            self._pin_first(first, now)
        told = self._told(connection, now)
        try:
            reply = connection.run(
                scripts()["pin"], self._keys, told, retry_for=patience, confirmation=self._connections.confirmation
            )
        except OtherSpread as other:
            self._agree(connection, other.found)
        else:
            self._clock.hear(int(reply[0]))
            if first is None and told[SPREAD] == self._namespace.told and self._namespace.spread is not None:
                self._namespace.learn(self._namespace.spread)

    def _pin_first(self, first: "Calls", now: int | None) -> None:
        """Shard 0 decides between clients that have it otherwise. What a shard has told is decided: then it need not answer."""
        decided = self._namespace.is_stored
        if decided and first.is_away():
            return
        try:
            first.pin(now, BRIEF if decided else None)
        except ConfirmTimeout:
            return  # it knows; a failover that undoes it has the next one tell it
        except (Unavailable, OutcomeUnknown) as error:
            if not decided:
                raise Unavailable(f"{error} Shard 0 has to know first how messages are spread, so nothing was done.") from error

    def _agree(self, connection: Connection, found: str) -> None:
        """The shard has it that messages are spread like `found`. Whoever knows the newer way tells the other one.

        Raises ConfigError if neither is newer.
        """
        namespace, other = self._namespace, read_spread(found)
        mine = namespace.spread or other
        unsaid = namespace.address.shards is None and mine == plain(1)  # the URL does not say how many
        if other.epoch == mine.epoch and other != mine and not unsaid:
            raise ConfigError(other_spread(self._connections.server.shown, found))
        if other.epoch >= mine.epoch:
            namespace.learn(other)
            return
        told = [*self._told(connection, None), namespace.told]
        told[SPREAD] = found
        try:
            confirmation = self._connections.confirmation if self._connections.checked else None
            connection.run(scripts()["spread"], self._keys, told, confirmation=confirmation)
        except OtherSpread as again:  # somebody else told it
            self._agree(connection, again.found)

    def pin(self, now: int | None = None, patience: float | None = None) -> None:
        """Store how the shards are spread, unless it is stored: ConfigError if it is otherwise, and neither way is newer."""
        self.check(patience)
        connection = self._connections.take()
        try:
            self._pin(connection, now, patience)
        except Unconfirmed as done:
            raise ConfirmTimeout(done.sentence) from None
        except Unanswered as lost:
            raise OutcomeUnknown(str(lost)) from None
        finally:
            self._connections.give(connection)

    def _told(self, connection: Connection, now: int | None) -> tuple[Text, ...]:
        """The first arguments of every script, for one that may run more than once."""
        until = self._clock.until(now, connection.retry_for)
        return texts(("" if now is None else now, self._clock.known, "", 0, b"", self._namespace.told, until))


def _fields(*told: bytes) -> dict[str, str]:
    """What INFO told."""
    lines = b"\n".join(told).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)
