"""Exceptions whose own code fails when somebody looks at them; each is made anew, and raised by a handler."""

import asyncio
from collections.abc import Callable
from typing import Any

from bide import Bury, Snooze


class NoText(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")

    __repr__ = __str__


class TextThatExits(Exception):
    def __str__(self) -> str:
        raise SystemExit(3)


class TextThatIsNone(Exception):
    def __str__(self) -> Any:
        return 5  # noqa: PLE0307  (that is the point)


class OddText(Exception):
    def __str__(self) -> Any:
        class Text(str):
            __slots__ = ()

            def __getitem__(self, place: Any) -> Any:
                raise RuntimeError("no part")

            def __format__(self, how: str) -> str:
                raise RuntimeError("no format")

        return Text("odd")


class NoAttributes(ValueError):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}")


class NoTraceback(ValueError):
    @property
    def __traceback__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no traceback")


class OddTraceback(ValueError):
    __traceback__: Any = 5


class NoCause(ValueError):
    @property
    def __cause__(self) -> Any:  # type: ignore[override]
        raise SystemExit(1)


class OddCause(ValueError):
    __cause__: Any = "a cause"


class NoClass(ValueError):
    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        raise RuntimeError("no class")


class NoNotes(ValueError):
    @property
    def __notes__(self) -> Any:  # type: ignore[override]
        raise RuntimeError("no notes")


class NeverEqual(Exception):
    def __eq__(self, other: object) -> bool:
        raise RuntimeError("not to be compared")

    __hash__ = None  # type: ignore[assignment]


class NoDelay(Snooze):
    @property
    def delay_ms(self) -> Any:
        raise SystemExit(2)

    @delay_ms.setter
    def delay_ms(self, value: Any) -> None: ...


class BuryWithoutText(Bury):
    def __str__(self) -> str:
        raise SystemExit(3)


class Meta(type):
    @property
    def __name__(cls) -> Any:  # type: ignore[override]
        raise RuntimeError("no name")


class NoName(Exception, metaclass=Meta):
    pass


class Bare(BaseException):
    pass


def _in_group() -> BaseException:
    return ExceptionGroup("all", [ValueError("\x00\x1b"), ExceptionGroup("some", [NoAttributes(), NoText()])])


def _caused() -> BaseException:
    error = ValueError("caused")
    error.__cause__ = NoAttributes()
    return error


def _circle() -> BaseException:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    return first


MISBEHAVING: dict[str, Callable[[], BaseException]] = {
    "no text": NoText,
    "a text that exits": TextThatExits,
    "a number for a text": TextThatIsNone,
    "a text of a kind of its own": OddText,
    "no attributes": NoAttributes,
    "no traceback": NoTraceback,
    "a number for a traceback": OddTraceback,
    "no cause": NoCause,
    "a text for a cause": OddCause,
    "no class": NoClass,
    "no notes": NoNotes,
    "never equal": NeverEqual,
    "a Snooze without a delay": NoDelay,
    "a Bury without a text": BuryWithoutText,
    "a class without a name": NoName,
    "no Exception": lambda: Bare("bare"),
    "in a group": _in_group,
    "as a cause": _caused,
    "causes in a circle": _circle,
    "a very long text": lambda: ValueError("x" * 100_000),
    "GeneratorExit": GeneratorExit,
    "CancelledError": asyncio.CancelledError,
    "SystemExit": lambda: SystemExit(2),
    "StopIteration": lambda: StopIteration(3),
    "StopAsyncIteration": StopAsyncIteration,
    "MemoryError": MemoryError,
}
