"""Somebody else's exceptions: what they raise when an attribute is read must not change what becomes of a message."""

from collections.abc import Iterator
from itertools import islice
from types import TracebackType
from typing import Any

ERROR_LENGTH = 500
SHOWN, SHOWN_LENGTH = 200, 20_000  # exceptions in one, and characters of a text, that a log or a record shows
ASKED = 1_000  # exceptions in one that are asked what a log would ask; it shows fewer
_name_of: Any = type.__dict__["__name__"].__get__  # a metaclass may have a __name__ of its own
_trace_of: Any = BaseException.__dict__["__traceback__"].__get__  # so may the class of an exception


class Unreadable(Exception):
    """Stands for an exception whose attributes can't be read, or that is too long to show. It says what could be read of it."""

    def __init__(self, error: BaseException) -> None:
        self.kind: type[BaseException] = kind_of(error)
        text = _text(error)
        more = len(text) - SHOWN_LENGTH
        super().__init__(text if more <= 0 else f"{text[:SHOWN_LENGTH]} … and {more:,} more characters")


def readable(error: BaseException) -> BaseException:
    """The exception itself, or an Unreadable for it: bide, `logging` and `traceback` can ask that anything."""
    try:
        for each in islice(_around(error), ASKED):
            _ask(each)
        return error
    except KeyboardInterrupt:
        raise
    except BaseException:
        return Unreadable(error).with_traceback(_trace_of(error))


def presentable(error: BaseException) -> BaseException:
    """The exception itself, or an Unreadable for one that would fill a log: a text of megabytes, a group of thousands."""
    around = list(islice(_around(error), SHOWN + 1))
    if len(around) <= SHOWN and all(len(said(each)) <= SHOWN_LENGTH for each in around):
        return error
    return Unreadable(error).with_traceback(_trace_of(error))


def bearable(error: BaseException) -> BaseException:
    """For what a thread raised: what a coroutine can't raise, or what would end the event loop, as an error that says so."""
    error = readable(error)
    if not isinstance(error, StopIteration | KeyboardInterrupt | GeneratorExit):
        return error
    told = RuntimeError(error_text(error))
    told.__cause__ = error
    return told


def kind_of(error: BaseException) -> type[BaseException]:
    """Its class, as an `except` clause sees it."""
    return error.kind if type(error) is Unreadable else type(error)


def said(error: object) -> str:
    """Its text, or its type where somebody else's __str__ fails."""
    try:
        return str.__str__(str(error))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return str(_name_of(type(error)))


def error_text(error: object) -> str | None:
    """What to keep of an error, for people to read."""
    if error is None:
        return None
    text = _text(error) if issubclass(type(error), BaseException) and type(error) is not Unreadable else said(error)
    return text[:ERROR_LENGTH].encode("utf-8", "replace").decode()


def _text(error: object) -> str:
    text, name = said(error), str(_name_of(type(error)))
    return name if text == name else f"{name}: {text}"


def _around(error: BaseException) -> Iterator[BaseException]:
    """The exception, and those that `traceback` shows with it: each once."""
    waiting, seen = [error], set()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        waiting += [other for other in (each.__cause__, each.__context__) if other is not None]
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


def _ask(error: BaseException) -> None:
    """What is asked of an exception on its way to a record or a log. Raises what it does."""
    isinstance(error, Unreadable)  # asks for its __class__, as each isinstance does where the type says no
    kind, trace, notes = type(error), error.__traceback__, getattr(error, "__notes__", None)
    about: list[tuple[Any, Any]] = [(kind.__name__, str), (kind.__qualname__, str), (kind.__module__, str)]
    about += [(trace, TracebackType | None), (error.__suppress_context__, bool)]
    if not all(isinstance(value, wanted) for value, wanted in about):
        raise TypeError
    if notes is not None:
        list(map(repr, notes))
