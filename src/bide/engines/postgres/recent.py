"""When something last happened to a topic or a delivery, if that was a moment ago: there may be very many of them."""

from collections.abc import Iterable

MOMENT = 1.0  # seconds for which it is known; longer than anybody asks for


class Recent:
    def __init__(self) -> None:
        self._young: dict[str, float] = {}
        self._old: dict[str, float] = {}  # before `_since`
        self._since = 0.0

    def at(self, name: str) -> float:
        """When it was; 0 if that is longer ago."""
        return self._young.get(name) or self._old.get(name, 0.0)

    def note(self, names: Iterable[str], now: float) -> None:
        if now >= self._since + MOMENT:
            self._old, self._young, self._since = self._young, {}, now
        self._young.update(dict.fromkeys(names, now))
