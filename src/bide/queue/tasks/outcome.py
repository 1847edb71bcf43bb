"""What becomes of a message when its handler has ended: what handlers raise or return to say so, and the rules."""

import contextlib
import random
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, TypeAlias

from bide.core.backoff import USUAL, wait_ms
from bide.core.formats import plural
from bide.core.times import MAX_DELAY_MS, duration_ms
from bide.engines.base import Claimed, Verdict
from bide.errors import BadOption, ConfigError, Locked
from bide.logs import Log
from bide.queue.tasks.arguments import Unread
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.failures import leaves
from bide.raised import error_text, readable, said
from bide.types import Duration

_log = Log("bide.tasks")
DEPLOY = 600_000  # ms that a message waits for a release of its task that knows its arguments,
SOON, SELDOM = 1_000, 60_000  # with waits from the one to the other
AWAY = 10_000  # ms at most until a message asks again for a part of the engine that does not answer


class Retry(Exception):
    """Raise it in a handler if this attempt failed. The next one is after `delay`, or after the task's backoff."""

    def __init__(self, delay: Duration | None = None) -> None:
        self.delay_ms: int | None = None if delay is None else duration_ms(delay)
        super().__init__(delay)

    def __str__(self) -> str:
        [delay] = self.args
        return "asked for another attempt" if delay is None else f"asked for another attempt in {delay}"


class Snooze(Exception):
    """Raise it in a handler if it is too early. The message comes back after `delay`, and this does not count as an attempt.

    max_wait: bury the message if it would come back later than this after its first attempt began.
    """

    def __init__(self, delay: Duration = "30s", *, max_wait: Duration | None = None) -> None:
        self.delay_ms: int = duration_ms(delay)
        self.max_wait_ms: int | None = None if max_wait is None else duration_ms(max_wait, "max_wait")
        super().__init__(delay)

    def __str__(self) -> str:
        return f"not yet: again in {self.args[0]}"


class Bury(Exception):
    """Raise it in a handler if the work can't be done. The message becomes a dead letter, with this reason."""

    def __init__(self, reason: str = "buried by its handler") -> None:
        super().__init__(reason)


class Outcome(NamedTuple):
    verdict: Verdict
    delay: int = 0
    error: str | None = None
    aside: bool = False
    called: bool = True  # the handler was: else this was no attempt, and `max_wait` does not count from it
    anew: bool = False  # what counts from the first attempt counts from this one

    def buries(self, attempt: int, max_attempts: int) -> bool:
        """Whether the message becomes a dead letter."""
        return self.verdict == "dead" or (self.verdict == "retry" and attempt >= max_attempts)


DONE = Outcome("done")
RELEASED = Outcome("release")


def outcome(error: BaseException | None, task: Definition, attempt: int, tried_ms: int, *, by_chance: bool = True) -> Outcome:
    """`tried_ms`: since the first attempt began. Not `by_chance`: waits aren't spread, so that they can be foreseen."""
    if error is None:
        return DONE
    try:
        return _decided(error, task, attempt, tried_ms, by_chance=by_chance)
    except KeyboardInterrupt:
        raise
    except BaseException:  # of a subclass of Retry, Snooze or Bury, by what is the user's own of it
        return Outcome("retry", wait_ms(USUAL, attempt, by_chance=by_chance), error_text(error))


def _decided(error: BaseException, task: Definition, attempt: int, tried_ms: int, *, by_chance: bool) -> Outcome:
    error = decisive(error)
    if isinstance(error, Snooze):
        if not _is_wait(error.delay_ms):
            return Outcome("retry", _without_wait(error, task, attempt, by_chance), error_text(error))
        if error.max_wait_ms is not None and tried_ms + error.delay_ms > error.max_wait_ms:
            return Outcome("dead", 0, f"put off for {tried_ms / 1000:.0f} s, and max_wait is {error.max_wait_ms / 1000:.0f} s")
        return Outcome("release", error.delay_ms)
    if isinstance(error, Bury):
        return Outcome("dead", 0, error_text(said(error)))
    if isinstance(error, Retry):
        if error.delay_ms is None:
            wait = _backoff(task, attempt, by_chance)
        else:
            wait = error.delay_ms if _is_wait(error.delay_ms) else _without_wait(error, task, attempt, by_chance)
        return Outcome("retry", wait, error_text(error.__cause__ or said(error)))
    if isinstance(error, Locked) and not task.failing.names(Locked):  # as with on_conflict="defer"
        wait = 1_000 * error.retry_after
        return Outcome("release", wait if _is_wait(wait) else SOON)
    if not task.failing.tries_again(error):
        return Outcome("dead", 0, error_text(error))
    return Outcome("retry", _backoff(task, attempt, by_chance), error_text(error))


def unread(error: Unread, claimed: Claimed, now: int, *, by_chance: bool = True) -> Outcome:
    """Of a message that does not fit. One for another release of the task waits for its worker, and that is no attempt.

    Each wait is as long as all before it together, and the last one ends DEPLOY after the first. A message that is due later
    than that has waited for something else, and begins to wait now.
    """
    told = error_text(str(error))
    began = now if claimed.began is None else claimed.began
    anew = claimed.due > began + DEPLOY + SELDOM
    tried = 0 if anew else now - began
    if not error.elsewhere or tried >= DEPLOY:
        return Outcome("dead", 0, told)
    wait = min(max(tried, SOON), SELDOM) * (random.uniform(0.8, 1.2) if by_chance else 1)
    return Outcome("release", min(round(wait), DEPLOY - tried), told, anew=anew)


def unanswered(claimed: Claimed, now: int) -> Outcome:
    """Of a message that needs a part of the engine which does not answer. Each wait is as long as all before it together."""
    wait = min(max(now - claimed.since, SOON), AWAY) * random.uniform(0.8, 1.2)
    return Outcome("release", round(wait), aside=True)


def spent(attempt: int, most: int) -> Outcome | None:
    """What becomes of a message that has had all its attempts, and whose handler must not begin again; None for others."""
    if attempt <= most:
        return None
    had = f"It has had {attempt - 1} of {plural(most, 'attempt')}, and the last did not come to an end"
    return Outcome("dead", 0, f"{had}: its worker died, froze or took too long. Or it failed while its task had more attempts.")


def decisive(error: BaseException) -> BaseException:
    """Of the errors in a group, as asyncio.TaskGroup raises it, the one that decides; an error alone decides itself.

    Bury is the end whatever else went wrong. Retry says when. Snooze counts only if nothing else was raised.
    """
    if not isinstance(error, BaseExceptionGroup):
        return error
    raised = list(leaves(error))
    for kind in (Bury, Retry):
        for each in raised:
            if isinstance(each, kind):
                return each
    return raised[0] if all(isinstance(each, Snooze) for each in raised) else error


def _backoff(task: Definition, attempt: int, by_chance: bool) -> int:
    """The task's wait. A backoff that fails must not keep a message from its next attempt."""
    try:
        return wait_ms(task.backoff, attempt, by_chance=by_chance)
    except KeyboardInterrupt:
        raise
    except BaseException:  # SystemExit too
        _log.exception("The backoff of %s failed for attempt %d, so the default one is used", task.name, attempt)
        return wait_ms(USUAL, attempt, by_chance=by_chance)


def _is_wait(ms: object) -> bool:
    """Whether an engine takes it. A subclass, or who raises it, may have set another one."""
    return type(ms) is int and 0 <= ms <= MAX_DELAY_MS


def _without_wait(error: Retry | Snooze, task: Definition, attempt: int, by_chance: bool) -> int:
    _log.error(
        "%s asked for a delay_ms of %r, so its backoff is used: milliseconds are an int from 0 to a hundred years",
        task.name,
        error.delay_ms,
    )
    return _backoff(task, attempt, by_chance)


class Failed:
    """Return it from a handler with `batch=`, alone or in a list, for an item that failed: `return [Failed(like, "no post")]`.
    The other items are done.

    - item: an item of the list that the handler was given.
    - error: why; an exception decides as if the handler had raised it for this item alone, also Retry, Snooze and Bury. A text
      counts as Retry.
    """

    __slots__ = ("error", "item")

    def __init__(self, item: object, error: BaseException | str | None = None) -> None:
        if not isinstance(error, BaseException | str | None):
            raise BadOption(f"error is a {type(error).__name__}. Give Failed(item, error) an exception or a text.")
        self.item: object = item
        self.error: BaseException = (
            readable(error) if isinstance(error, BaseException) else FailureText(error or "its handler says it failed")
        )

    def __repr__(self) -> str:
        return f"Failed({self.item!r}, {self.error!r})"


Failures: TypeAlias = Failed | Iterable[Failed]
"""What a handler with `batch=` returns, if not None."""


class FailureText(Retry):
    """A failure in words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text: str = text

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return repr(self.text)


def failures(returned: Any, items: Sequence[Any], name: str) -> dict[int, BaseException]:
    """Which items failed, by their places, and why. Raises ConfigError for what is no answer, since nobody could act on it."""
    if returned is None:
        return {}
    answers = [returned] if isinstance(returned, Failed) else returned
    if isinstance(answers, str | bytes) or not isinstance(answers, Iterable):
        raise ConfigError(_no_answer(name, type(returned).__name__))
    found: dict[int, BaseException] = {}
    places = _Places(items)
    for each in answers:
        if not isinstance(each, Failed):
            raise ConfigError(_no_answer(name, f"{type(returned).__name__} with a {type(each).__name__} in it"))
        known = places.of(each.item)
        if not known:
            kind = type(each.item).__name__
            raise ConfigError(
                f"{name}() returned a Failed for an item of type {kind} that is not in its batch: give it an item of the list, "
                "not its place or a field of it."
            )
        found |= dict.fromkeys(known, each.error)
    return found


class _Places:
    """Where each item is in its batch. All of 10,000 may have failed, so a look-up must not go through all of them."""

    def __init__(self, items: Sequence[Any]) -> None:
        self._items = items
        self._same: dict[int, list[int]] = {}  # by identity
        for place, each in enumerate(items):
            self._same.setdefault(id(each), []).append(place)
        self._equal: dict[Any, list[int]] | None = None

    def of(self, item: object) -> Sequence[int]:
        """This very object, or else all that are equal to it."""
        return self._same.get(id(item)) or self._equals(item)

    def _equals(self, item: object) -> Sequence[int]:
        kind = type(item)
        try:
            hash(item)
        except TypeError:
            return [place for place, each in enumerate(self._items) if type(each) is kind and each == item]
        if self._equal is None:
            self._equal = {}
            for place, each in enumerate(self._items):
                with contextlib.suppress(TypeError):  # it has no hash, so it is equal to none that has one
                    self._equal.setdefault((type(each), each), []).append(place)
        return self._equal.get((kind, item), ())


def _no_answer(name: str, what: str) -> str:
    return (
        f"{name}() is given a batch and returned a {what}: return None if all is done, or a list of Failed(item, error) for "
        "what failed."
    )
