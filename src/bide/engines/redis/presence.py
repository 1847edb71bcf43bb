"""Whether a server answers, as its connections find out, so that calls which need others too don't wait for it."""

import time

from bide.logs import Log

_log = Log("bide.redis")
SOON, LATER = 0.25, 5.0  # seconds between two quick questions to a server that is away, growing
HASTE = 1.0  # seconds for the answer


class Presence:
    """Shared by all connections to one server. Times are monotonic."""

    def __init__(self, shown: str, patience: float) -> None:
        """`patience`: seconds that it may be away until the log says so."""
        self.since: float = 0.0  # when it first did not answer, of those times since it last did
        self._shown = shown
        self._patience = patience
        self._told = False
        self._ask_at, self._pause = 0.0, SOON

    def lose(self) -> None:
        """A command got no answer, or the answer that it can't be done now."""
        now = time.monotonic()
        if not self.since:
            self.since, self._pause = now, SOON
            self._ask_at = now + SOON
        elif now - self.since > self._patience and not self._told:
            self._told = True
            _log.warning(
                "A server of %s has not answered for %.0f seconds, and is asked at times.", self._shown, now - self.since
            )

    def find(self) -> None:
        """It has answered."""
        if self.since:
            self.since = 0.0
            if self._told:
                self._told = False
                _log.warning("The server of %s answers again.", self._shown)

    def is_to_be_asked(self) -> bool:
        """Whether it is time for a quick question. Then the caller asks it, and others go by what is known."""
        now = time.monotonic()
        due = self._ask_at <= now
        if due:
            self._pause = min(LATER, 2 * self._pause)
            self._ask_at = now + self._pause + HASTE
        return due
