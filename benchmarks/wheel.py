"""A hierarchical timing wheel of one-millisecond ticks: the other way to keep what is pending, for comparison.

Eight levels of 256 slots reach past a hundred years. An item goes into the level whose slot is not the present one;
when time enters that slot, its items move a level down.
"""

from typing import Any

BITS, LEVELS = 8, 8
SLOTS = 1 << BITS


class Wheel:
    def __init__(self, now: int) -> None:
        self._now = now
        self._levels: list[dict[int, list[tuple[int, int, Any]]]] = [{} for _ in range(LEVELS)]
        self._due: list[tuple[int, int, Any]] = []

    def add(self, due: int, order: int, item: Any) -> None:
        if due <= self._now:
            self._due.append((due, order, item))
            return
        level = ((due ^ self._now).bit_length() - 1) // BITS
        slot = due >> (level * BITS)
        slots = self._levels[level]
        found = slots.get(slot)
        if found is None:
            slots[slot] = [(due, order, item)]
        else:
            found.append((due, order, item))

    def take(self, now: int) -> list[tuple[int, int, Any]]:
        """All that is due, in order."""
        while True:
            entered = self._next_slot()
            if entered is None or entered[0] > now:
                break
            begin, level, slot = entered
            self._now = max(self._now, begin)
            for entry in self._levels[level].pop(slot):
                self.add(*entry)
        self._now = max(self._now, now)
        due, self._due = self._due, []
        due.sort(key=lambda entry: entry[:2])
        return due

    def _next_slot(self) -> tuple[int, int, int] | None:
        """The first slot that is not empty: its beginning, its level, its number. The finest level comes first."""
        for level, slots in enumerate(self._levels):
            if slots:
                slot = min(slots)
                return slot << (level * BITS), level, slot
        return None
