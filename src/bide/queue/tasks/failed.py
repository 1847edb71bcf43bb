"""How a handler that is given a batch says which of its items have failed."""

import contextlib
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from bide.errors import BadOption, ConfigError
from bide.queue.tasks.outcome import Retry
from bide.raised import readable


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
            readable(error) if isinstance(error, BaseException) else Told(error or "its handler says it failed")
        )

    def __repr__(self) -> str:
        return f"Failed({self.item!r}, {self.error!r})"


Failures: TypeAlias = Failed | Iterable[Failed]
"""What a handler with `batch=` returns, if not None."""


class Told(Retry):
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
