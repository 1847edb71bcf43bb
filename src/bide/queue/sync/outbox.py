# Generated from ../aio/outbox.py by tools/unasync.py; change that file instead.
"""The outbox: sends that are committed with the caller's own work, and then handed to the queue's engine, at least once."""

from collections.abc import Sequence

from bide.engines.base import SWEEP, Claimed, End, NewMessage, Verdict
from bide.engines.sync import Engine
from bide.errors import BadMessage, EngineError
from bide.logs import Log
from bide.queue import outbox
from bide.types import Sent
from bide.wakeable import Signal

AT_ONCE = 100  # messages
LEASE = 30_000  # ms after which another one hands on what a dead one had taken
SOON, LATER = 500, 10_000  # ms until the next try while the queue's engine is away

_log = Log("bide.outbox")


class Outbox:
    """`store`: the engine of the caller's database. Any number of programs may hand its messages on."""

    def __init__(self, store: Engine, target: Engine) -> None:
        self.store: Engine = store
        self._target = target
        self._pause = SOON

    def put(self, messages: Sequence[NewMessage], *, connection: object) -> list[Sent]:
        self.store.open()
        kept = self.store.put([outbox.kept(new) for new in messages], connection=connection)
        return outbox.answers(messages, kept)

    def hand_on(self) -> int:
        """Hand on what has been committed, a bounded number. Raises when the queue's engine does not take it."""
        self.store.open()
        claimed = self.store.claim([outbox.TOPIC], AT_ONCE, LEASE).messages
        if not claimed:
            self.store.tend()
            return 0
        try:
            ends = self._put(claimed)
        except EngineError:
            self.store.settle([_end(each, "release", self._pause) for each in claimed])
            raise
        self.store.settle(ends)
        return len(claimed)

    def _put(self, claimed: Sequence[Claimed]) -> list[End]:
        """Together; if one is refused, one by one, and that one becomes a dead letter of the outbox."""
        try:
            self._target.put([outbox.handed_on(each) for each in claimed])
        except BadMessage as error:
            if len(claimed) == 1:
                _log.error("A message of the outbox was refused, and is a dead letter of it now: %s", error)
                return [_end(claimed[0], "dead", error=str(error))]
            return [end for each in claimed for end in self._put([each])]
        return [_end(each) for each in claimed]

    def run(self) -> None:
        """Hand on what comes, for ever."""
        while True:
            try:
                while self.hand_on():
                    self._pause = SOON
                self.store.wait([outbox.TOPIC], SWEEP)
            except EngineError as error:
                _log.warning("Messages stay in the outbox, and are tried again in %.1f s: %s", self._pause / 1000, error)
                Signal().wait(self._pause / 1000)
                self._pause = min(2 * self._pause, LATER)

    def close(self) -> None:
        self.store.close()


def _end(claimed: Claimed, verdict: Verdict = "done", delay: int = 0, error: str | None = None) -> End:
    return End(claimed.topic, claimed.id, claimed.token, verdict, delay, error)
