"""What the doctors share: checks that run one after the other, and the findings that each of them words alike."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Literal, TypeAlias, TypeVar

from bide.engines.base import Finding
from bide.errors import BideError, ConfigError

Asked = TypeVar("Asked")
Level: TypeAlias = Literal["ok", "warn", "bad"]
Check: TypeAlias = Callable[[Asked], Iterable[Finding]]


def run(
    checks: Mapping[str, Check[Asked]],
    asked: Asked,
    why: Callable[[Exception], str | None] = lambda _: None,
    level: Level = "ok",
) -> Iterator[Finding]:
    """What the checks find, in their order. One that fails is a finding with its name, and the others still run.

    `why`: the reason for an error of the driver, without a secret; None if the engine does not expect the error. It raises
    the error if nothing more can be asked. `level`: of what is not known for such a reason.
    """
    for name, check in checks.items():
        try:
            yield from check(asked)
        except Exception as error:
            reason = str(error) if isinstance(error, BideError) else why(error)
            if reason is None:  # its text may hold anything, also a secret
                yield Finding(
                    name, f"not known: the check failed with {type(error).__name__}", "warn", "report it as a bug of bide"
                )
            else:
                yield Finding(name, f"not known: {reason}", level)


def judged(name: str, value: str, level: Level, advice: str, *, when: bool) -> Finding:
    return Finding(name, value, level, advice) if when else Finding(name, value)


def unreached(error: BideError, server: str) -> Finding:
    """Nothing can be asked. `server`: what the engine calls it."""
    advice = (
        f"change the URL, or the user's rights on the {server}" if isinstance(error, ConfigError) else f"start the {server}"
    )
    return Finding("state", str(error), "bad", advice)
