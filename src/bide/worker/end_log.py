"""Which ends of messages the log tells: of failed attempts always, of done ones if they took long or if all are asked for."""

import logging
from collections.abc import Sequence

from bide.engines.base import Ended
from bide.logs import Log
from bide.queue.run.message import Handling
from bide.worker.log_lines import tell_by_itself, tell_done, tell_given_back

_log = Log("bide.worker")


class EndLog:
    """Told when the engine has answered: only then it is known that a message is done."""

    def __init__(self, slow: float, *, every: bool) -> None:
        """`slow`: seconds of a handler that are worth a line. `every`: each end is told at INFO, and not only at DEBUG."""
        self.slow: float = slow
        self.level: int = logging.INFO if every else logging.DEBUG  # of ends that are as they should be
        self.timed: bool = False
        self._slow: dict[Handling, None] = {}  # whose end the engine is being told

    def times_each(self) -> bool:
        """Whether each end is told from now on, so that each handler is timed."""
        self.timed = _log.listens(self.level)
        return self.timed

    def returned(self, handling: Handling, began: float) -> None:
        """The handler of a plain task has, and seems to be slow. `began`: about when it was called."""
        handling.ends_work(began)
        self.done(handling)

    def done(self, handling: Handling) -> None:
        """A handler has returned, and it is known how long that took."""
        if handling.worked >= self.slow:
            self._slow[handling] = None

    def settled(self, batch: Sequence[Handling], answers: Sequence[Ended]) -> None:
        """The engine has answered the ends of deliveries. Those of failed attempts were told with their errors."""
        every = _log.listens(self.level)
        if not (every or self._slow):
            return
        for handling, answer in zip(batch, answers, strict=True):
            slow = handling in self._slow
            self._slow.pop(handling, None)
            if answer == "lost" or not (slow or every):
                continue  # what was lost has a line of its own
            if handling.end is None or handling.end.verdict == "done":
                tell_done(handling, logging.INFO if slow else self.level)
            elif handling.end.verdict == "release" and handling.why == "stop" and handling.at_work is not None:
                tell_given_back(handling, self.level)

    def by_itself(self, handling: Handling) -> None:
        """The handler has ended its delivery with one of its verbs, and the engine has answered that."""
        slow = handling.worked >= self.slow
        tell_by_itself(handling, logging.INFO if slow else self.level)
