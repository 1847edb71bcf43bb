"""Whether a server answers, as its connections find out, so that calls which need others too don't wait for it."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import redis.exceptions as theirs

from bide.engines.redis.failures import BRIEF
from bide.logs import Log

_log = Log("bide.redis")
SOON, LATER = 0.25, 5.0  # seconds between two questions to a server that is away, growing
HASTE = 1.0  # seconds for the answer
SLOW = 4  # times the usual time of an answer, that such waits are longer where servers are far away
SHARE = 8  # the usual time is an average, to which each answer adds one part in so many


class Excuse(NamedTuple):
    """Why a server can't do it now, as it says itself."""

    why: str
    looks: bool = False  # it is so for changes only: whoever looks is answered as ever
    slot: bool = False  # it is so for one slot of a Cluster: whatever else the server has is used as ever


class Presence:
    """Shared by all connections to one server. Times are monotonic."""

    def __init__(self, place: Callable[[], str], patience: float) -> None:
        """`place`: which server it is, for people. `patience`: seconds that it may be away until the log says so."""
        self.since: float = 0.0  # when it first did not answer, of those times since it last did
        self.excuse: Excuse | None = None  # if it answers so
        self._place = place
        self._patience = patience
        self._told = False
        self._ask_at, self._pause = 0.0, SOON
        self._asked: dict[object, float] = {}  # by those who wait for an answer: since when
        self.heard: float = 0.0  # when it last answered anybody
        self._usual = 0.0  # seconds until it answers

    @property
    def silent(self) -> bool:
        """Whether it does not answer, as far as is known: it has not lately, or somebody has been waiting too long by now."""
        if self.since:
            return True
        waiting = list(self._asked.values())
        return bool(waiting) and time.monotonic() - max(self.heard, min(waiting)) > self.patience(BRIEF)

    def patience(self, seconds: float) -> float:
        """So many seconds for an answer, and more if it usually takes its time."""
        return seconds + SLOW * self._usual

    @contextmanager
    def waiting(self, by: object, patience: float | None) -> Iterator[float | None]:
        """While a connection is made. Gives the seconds for each of its steps; a server that needs more is taken for silent."""
        self.ask(by)
        try:
            yield None if patience is None else self.patience(patience)
        except (TimeoutError, theirs.TimeoutError):
            self.lose()
            raise
        finally:
            self.end(by)

    def ask(self, by: object) -> None:
        """A command is on its way."""
        self._asked[by] = time.monotonic()

    def end(self, by: object) -> None:
        """It was answered, or nobody waits for that any more."""
        self._asked.pop(by, None)

    def answer(self, by: object) -> None:
        """The server has answered it."""
        self.heard = now = time.monotonic()
        self._usual += (now - self._asked.pop(by, now) - self._usual) / SHARE

    def lose(self, excuse: Excuse | None = None) -> None:
        """A command got no answer; or one, which is why it can't be done now."""
        now = time.monotonic()
        self.excuse = excuse
        if not self.since:
            self.since, self._pause = now, SOON
            self._ask_at = now + SOON
        elif now - self.since > self._patience and not self._told:
            self._told = True
            away = now - self.since
            if excuse:
                _log.warning("%s. That is so for %.0f seconds, and it is asked at times.", self.state, away)
            else:
                _log.warning("%s has not answered for %.0f seconds, and is asked at times.", self._place(), away)

    def find(self, *, looked: bool = False, took: float = 0.0) -> None:
        """It has answered. `looked`: to somebody who changes nothing. `took`: seconds for an answer."""
        self._usual = max(self._usual, min(took, LATER) / SLOW)
        if not self.since or (looked and self.only_looks):
            return
        again = "takes changes" if self.only_looks else "can do it" if self.excuse else "answers"
        self.since, self.excuse = 0.0, None
        if self._told:
            self._told = False
            _log.warning("%s %s again.", self._place(), again)

    @property
    def only_looks(self) -> bool:
        """Whether those who change nothing are answered, and nobody else."""
        return self.excuse is not None and self.excuse.looks

    @property
    def state(self) -> str:
        """What to say of it while it is silent."""
        if self.excuse:
            what = "takes no changes" if self.only_looks else "can't do it"
            return f"{self._place()} answers, but {what} now: {self.excuse.why}"
        return f"{self._place()} does not answer"

    def is_to_be_asked(self) -> bool:
        """Whether it is time for a question. Then the caller asks it, and others go by what is known."""
        now = time.monotonic()
        due = self._ask_at <= now
        if due:
            self._pause = min(LATER, 2 * self._pause)
            self._ask_at = now + self._pause + self.asks_for
        return due

    def asked(self) -> None:
        """That question has found no answer, which may have been sooner than it was worth."""
        self._ask_at = time.monotonic() + self._pause

    @property
    def asks_for(self) -> float:
        """Seconds for the answer to such a question: more each time, so that a server that is only slow is found, too."""
        return max(HASTE, self._pause)
