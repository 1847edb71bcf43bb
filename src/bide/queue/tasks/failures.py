"""What a task says of its failures: which are worth another attempt, and who is told of a message that has had its last one."""

import inspect
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from bide.blocking import AsyncApart
from bide.errors import BadOption
from bide.raised import kind_of

OnDead: TypeAlias = Callable[[Any, str], Any]
"""Called with the delivery, and why its message becomes a dead letter. It may be async."""

Errors: TypeAlias = type[BaseException] | Iterable[type[BaseException]]


class FailureRules:
    def __init__(self, retry_for: Errors | None, no_retry_for: Errors, on_dead: OnDead | None) -> None:
        self._retry_for = None if retry_for is None else _errors(retry_for, "retry_for")
        self._no_retry_for = _errors(no_retry_for, "no_retry_for")
        if on_dead is not None and not callable(on_dead):
            raise BadOption(f"on_dead is a {type(on_dead).__name__}. Give a function of the delivery and the reason.")
        if on_dead is not None and not _takes_two(on_dead):
            raise BadOption("on_dead is called with the delivery and the reason: def on_dead(delivery, reason).")
        self.on_dead: OnDead | None = on_dead
        self.is_async: bool = inspect.iscoroutinefunction(on_dead)

    def names(self, kind: type[BaseException]) -> bool:
        """Whether the task says itself what to do with such errors."""
        return kind in (self._retry_for or ()) or kind in self._no_retry_for

    async def tell(self, delivery: Any, reason: str) -> None:
        """Call on_dead: an async one here, a sync one in a thread, since it may block."""
        on_dead = self.on_dead
        if on_dead is None:
            return
        result = on_dead(delivery, reason) if self.is_async else await AsyncApart(lambda: on_dead(delivery, reason)).done()
        if inspect.isawaitable(result):
            await result

    def tries_again(self, error: BaseException) -> bool:
        """Whether a failure is worth another attempt. Of a group, one in no_retry_for decides, and then one in retry_for."""
        raised = list(leaves(error))
        if any(issubclass(kind_of(each), self._no_retry_for) for each in raised):
            return False
        return self._retry_for is None or any(issubclass(kind_of(each), self._retry_for) for each in raised)


def leaves(error: BaseException) -> Iterable[BaseException]:
    """The errors in a group and in its groups, in their order; an error that is no group by itself."""
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(reversed(each.exceptions))
        else:
            yield each


def _takes_two(function: OnDead) -> bool:
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        return False
    except ValueError:  # of a builtin, whose signature nobody knows
        return True
    return True


def _errors(given: Any, name: str) -> tuple[type[BaseException], ...]:
    found = (
        (given,)
        if isinstance(given, type)
        else tuple(given)
        if isinstance(given, Iterable) and not isinstance(given, str)
        else (given,)
    )
    for each in found:
        if not (isinstance(each, type) and issubclass(each, BaseException)):
            raise BadOption(f"{name} holds {each!r}. Give classes of errors: {name}=(ValueError, KeyError).")
    return found
