"""Engine time: a wall clock that never goes back and never stands still."""

from typing import NamedTuple


class Steady(NamedTuple):
    """What to remember between two readings, in any unit."""

    raw: int  # the wall clock when last read
    mark: int  # the engine's time then

    def read(self, raw: int) -> "Steady":
        """The engine's time when the wall clock shows `raw`.

        While the wall clock is behind the mark (somebody set it back), the engine's time goes on at half its
        speed until the two have met: due messages come a little late, none early, and no lease stands still.
        """
        if raw >= self.mark:
            return Steady(raw, raw)
        return Steady(raw, self.mark + max(0, raw - self.raw) // 2)


BEGIN = Steady(0, 0)
