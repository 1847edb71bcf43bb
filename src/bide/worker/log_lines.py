"""What the log says of a message and its handler, and which ends it tells: of failed attempts always, of done ones if they were
slow or if all are asked for.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from bide.core.formats import plural, span
from bide.engines.base import Ended, Verdict
from bide.logs import Log
from bide.queue import AsyncDelivery
from bide.queue.deliveries import internals
from bide.queue.run.message import Handling, about, name
from bide.queue.tasks.arguments import Unread
from bide.queue.tasks.outcome import Bury, Outcome, Retry, Snooze
from bide.raised import said

_log = Log("bide.worker")


def tell(handling: Handling, became: Outcome | None, error: BaseException, level: int = logging.DEBUG) -> None:
    """An attempt has failed, or was no attempt. `level`: of what is as it should be."""
    delivery = handling.delivery
    if isinstance(error, Unread):
        if became is not None and became.verdict == "release":
            text, wait = "%s waits for another release of its task, and is tried again in %g s: %s", became.delay / 1000
            _log.warning(text, name(delivery), wait, error, extra=_about(handling, "released"))
        else:
            _log.error("%s is buried: %s", name(delivery), error, extra=_about(handling, "dead"))
    elif became is not None and became.verdict == "release":
        text, wait = "%s was put off in %s, and comes back in %g s: %s", became.delay / 1000
        _log.at(level, text, name(delivery), _attempt(handling), wait, said(error), extra=_about(handling, "released"))
    else:
        _tell_failed(handling, became, error)


def _tell_failed(handling: Handling, became: Outcome | None, error: BaseException) -> None:
    """If the handler has said itself what is to become of its message, nobody needs to see where it said so."""
    delivery = handling.delivery
    asked = became is not None and isinstance(error, Bury | Retry | Snooze)
    if became is None:
        outcome, then, say = "lost", "what becomes of it is not known here", _log.error
    elif became.buries(delivery.attempt, delivery.max_attempts):
        outcome, then, say = "dead", "is buried", _log.warning if asked else _log.error
    else:
        outcome, then, say = "retried", f"is tried again in {became.delay / 1000:g} s", _log.info if asked else _log.error
    said_so, reason = (", as its handler asked", f": {became.error}") if asked and became is not None else ("", "")
    say(
        "%s failed in %s%s, and %s%s",
        name(delivery),
        _attempt(handling),
        said_so,
        then,
        reason,
        exc_info=None if asked else error,
        extra=_about(handling, outcome),
    )


def tell_done(handling: Handling, level: int) -> None:
    claimed = handling.claimed
    _log.at(level, "%s is done in %s", name(claimed), _attempt(handling), extra=_about(handling, "done"))


def tell_given_back(handling: Handling, level: int) -> None:
    """The worker stops before its handler has ended."""
    text = "%s was given back in %s, because the worker stops"
    _log.at(level, text, name(handling.claimed), _attempt(handling), extra=_about(handling, "released"))


def tell_by_itself(handling: Handling, verdict: Verdict, level: int) -> None:
    """Its handler has called a verb of the delivery."""
    text, outcome = _BY_VERDICT[verdict]
    level = max(level, {"retried": logging.INFO, "dead": logging.WARNING}.get(outcome, level))
    _log.at(level, text, name(handling.delivery), _attempt(handling), extra=_about(handling, outcome))


_BY_VERDICT: Mapping[Verdict, tuple[str, str]] = {
    "done": ("%s is done in %s, as its handler said", "done"),
    "retry": ("%s failed in %s, as its handler said, and is tried again", "retried"),
    "release": ("%s was put off in %s, as its handler said", "released"),
    "dead": ("%s failed in %s, as its handler said, and is buried", "dead"),
}


def _attempt(handling: Handling) -> str:
    """Which attempt it was, and how long its handler took, if that was called."""
    took = "" if not handling.worked else f" after {handling.worked:.3f} s"
    return f"attempt {handling.claimed.attempt} of {handling.most}{took}"


def _about(handling: Handling, outcome: str) -> dict[str, Any]:
    """For structured logs."""
    took = {"seconds": round(handling.worked, 6)} if handling.worked else {}
    return about(handling.claimed) | (handling.log_fields or {}) | {"outcome": outcome} | took


def tell_together(
    handlings: Sequence[Handling], became: Sequence[Outcome | None], errors: Sequence[BaseException | None]
) -> None:
    """A batch ended with one error for all of its messages: it is told once, with what becomes of how many."""
    ends = [(each, end, error) for each, end, error in zip(handlings, became, errors, strict=True) if error and end]
    if not ends:
        return
    buried = sum(end.buries(each.delivery.attempt, each.delivery.max_attempts) for each, end, _ in ends)
    first, _, error = ends[0]
    asked = isinstance(error, Bury | Retry | Snooze)
    say = _log.error if not asked else _log.warning if buried else _log.info
    say(
        "The handler of %s of %s %s for all of them after %.3f s, and %d of them are buried%s",
        plural(len(ends), "message"),
        first.topic,
        "asked" if asked else "failed",
        first.worked,
        buried,
        f": {said(error)}" if asked else "",
        exc_info=None if asked else error,
        extra={
            "topic": first.topic,
            "message_ids": [each.delivery.id for each, _, _ in ends],
            "seconds": round(first.worked, 6),
        },
    )


def tell_lost(delivery: AsyncDelivery, and_now: str) -> None:
    _log.warning(
        "The lease of message %s of %s was lost in attempt %d: %s, and what it says is not heard",
        delivery.id,
        delivery.topic,
        delivery.attempt,
        and_now,
        extra=about(delivery),
    )


def tell_place_lost(delivery: AsyncDelivery) -> None:
    _log.warning(
        "%s has lost its lock, or its place in a limit, since it could not be renewed in time: its handler is told to stop",
        name(delivery),
        extra=about(delivery),
    )


def tell_unheeded(delivery: AsyncDelivery, *, replaced: bool) -> None:
    """A handler goes on although its timeout is long over."""
    _log.error(
        "The handler of message %s of %s goes on although its timeout is long over: %s",
        delivery.id,
        delivery.topic,
        "this process ends and is replaced" if replaced else "it keeps its place until it ends",
        extra=about(delivery),
    )


def tell_stopping(running: int, grace: float) -> None:
    _log.info("The worker is stopping: running messages get up to %g s. Running: %d.", grace, running)


def tell_stopped(done: int, failed: int, given_back: int, seconds: float) -> None:
    """`failed`: attempts that failed. `given_back`: by this stop. `seconds`: since it began to work."""
    _log.info(
        "The worker has stopped after %s. Done: %d. Failed: %d. Given back to the queue: %d.",
        span(seconds) or "less than a second",
        done,
        failed,
        given_back,
        extra={"done": done, "failed": failed, "given_back": given_back, "seconds": round(seconds, 3)},
    )


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

    def by_itself(self, handling: Handling) -> Verdict:
        """The handler has ended its delivery with one of its verbs, and the engine has answered that. Which it was."""
        slow, verdict = handling.worked >= self.slow, internals(handling.delivery).verdict or "done"
        tell_by_itself(handling, verdict, logging.INFO if slow else self.level)
        return verdict
