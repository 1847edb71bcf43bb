"""What the log says of a message and its handler."""

from collections.abc import Sequence

from bide.core.formats import plural
from bide.logs import Log
from bide.queue import AsyncDelivery
from bide.queue.run.message import about, name
from bide.queue.tasks.arguments import Unread
from bide.queue.tasks.outcome import Bury, Outcome, Retry, Snooze
from bide.raised import said

_log = Log("bide.worker")


def tell(delivery: AsyncDelivery, became: Outcome | None, error: BaseException) -> None:
    if isinstance(error, Unread):
        if became is not None and became.verdict == "release":
            text, wait = "%s waits for another release of its task, and is tried again in %g s: %s", became.delay / 1000
            _log.warning(text, name(delivery), wait, error, extra=about(delivery))
        else:
            _log.error("%s is buried: %s", name(delivery), error, extra=about(delivery))
    elif became is not None and became.verdict == "release":
        _log.debug("%s: %s", name(delivery), said(error), extra=about(delivery))
    elif became is not None and isinstance(error, Bury | Retry | Snooze):
        _tell_asked(delivery, became)
    else:
        attempt = f"{delivery.attempt} of {delivery.max_attempts}"
        _log.error("%s failed in attempt %s", name(delivery), attempt, exc_info=error, extra=about(delivery))


def tell_together(
    deliveries: Sequence[AsyncDelivery], became: Sequence[Outcome | None], errors: Sequence[BaseException | None]
) -> None:
    """A batch ended with one error for all of its messages: it is told once, with what becomes of how many."""
    ends = [(delivery, end, error) for delivery, end, error in zip(deliveries, became, errors, strict=True) if error and end]
    if not ends:
        return
    buried = sum(end.buries(delivery.attempt, delivery.max_attempts) for delivery, end, _ in ends)
    delivery, _, error = ends[0]
    asked = isinstance(error, Bury | Retry | Snooze)
    say = _log.error if not asked else _log.warning if buried else _log.info
    say(
        "The handler of %s of %s %s for all of them, and %d of them are buried%s",
        plural(len(ends), "message"),
        delivery.topic,
        "asked" if asked else "failed",
        buried,
        f": {said(error)}" if asked else "",
        exc_info=None if asked else error,
        extra={"topic": delivery.topic, "message_ids": [each.id for each, _, _ in ends]},
    )


def _tell_asked(delivery: AsyncDelivery, became: Outcome) -> None:
    """The handler has said itself what is to become of its message: nobody needs to see where it said so."""
    if became.verdict == "dead":
        _log.warning("%s is buried, as its handler asked: %s", name(delivery), became.error, extra=about(delivery))
    elif delivery.attempt >= delivery.max_attempts:
        _log.warning("%s is buried after its last attempt: %s", name(delivery), became.error, extra=about(delivery))
    else:
        _log.info(
            "%s is tried again in %g s, as its handler asked: %s",
            name(delivery),
            became.delay / 1000,
            became.error,
            extra=about(delivery),
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


def tell_stopped(done: int, failed: int, given_back: int) -> None:
    """`failed`: attempts that failed. `given_back`: by this stop."""
    _log.info("The worker has stopped. Done: %d. Failed: %d. Given back to the queue: %d.", done, failed, given_back)
