"""A subscription: the methods of one subscriber, and how they are called without harm."""

import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from bide.errors import BadOption
from bide.logs import Log

_log = Log("bide.events")
Kind: TypeAlias = Literal["sent", "begun", "ended", "failed", "called", "sending", "handling"]
KINDS: tuple[Kind, ...] = (
    "sent",  # the engine has accepted messages
    "begun",  # deliveries have begun,
    "ended",  # and have ended
    "failed",  # a call of the engine has failed
    "called",  # a call of the engine has ended, well or not
    "sending",  # messages are about to be sent
    "handling",  # a handler is about to be called
)
AROUND: frozenset[Kind] = frozenset({"sending", "handling"})
"""These are told before the fact, and may give a context manager for the time until it is done: see around.py."""


class Subscription:
    """What `subscribe` returns: close it, call it, or leave its `with` block, and its subscriber is called no more."""

    def __init__(self, subscriber: object, ends: Callable[["Subscription"], object]) -> None:
        self._calls = _methods(subscriber)
        self._name = type(subscriber).__name__
        self._ends = ends
        self._closed = False
        self._failed = False
        self._here = threading.local()  # whether this thread calls it now

    def close(self) -> None:
        """End it, from any thread, also within a call of the subscriber. To close it again does nothing."""
        self._closed = True
        self._ends(self)

    def __call__(self) -> None:
        self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    @property
    def _kinds(self) -> Sequence[Kind]:
        """Of the events that it is told."""
        return list(self._calls)

    def _tell(self, kind: Kind, event: object) -> None:
        if kind in self._calls:
            self._call(kind, self._asked, kind, event)

    def _asked(self, kind: Kind, event: object) -> Any:
        """What its subscriber gives back, if it is told of that."""
        call = self._calls.get(kind)
        return None if call is None or self._closed else call(event)

    def _call(self, kind: Kind, what: Callable[..., Any], *given: Any) -> Any:
        """Call what is the subscriber's own: what that raises is logged once.

        What its subscriber causes while it is called is not told to it, or it could go on for ever.
        """
        here = self._here
        if getattr(here, "inside", False):
            return None
        try:
            here.inside = True
            return what(*given)
        except KeyboardInterrupt:
            raise
        except BaseException:  # SystemExit too, as of a hook
            if not self._failed:
                self._failed = True
                _log.exception(
                    "The subscriber %s failed in %s. It is still called; more of this is not told.", self._name, kind
                )
        finally:
            here.inside = False
        return None


def _methods(subscriber: object) -> Mapping[Kind, Callable[[Any], object]]:
    found: dict[Kind, Callable[[Any], object]] = {}
    for kind in KINDS:
        method = getattr(subscriber, kind, None)
        if callable(method):
            if inspect.iscoroutinefunction(method):
                raise BadOption(
                    f"{kind}() of the subscriber is async. Make it a plain method which is quick: nobody awaits it."
                )
            found[kind] = method
    if not found:
        raise BadOption(
            f"{type(subscriber).__name__} has none of the methods {', '.join(f'{kind}()' for kind in KINDS[:-1])} and "
            f"{KINDS[-1]}(). Give an object with those that you need; each takes one event."
        )
    return found
