"""Engine time: a wall clock that never goes back and never stands still."""


class Steady:
    """What to remember between two readings, in any unit."""

    __slots__ = ("mark", "raw")

    def __init__(self, raw: int = 0, mark: int = 0) -> None:
        self.raw: int = raw  # the wall clock when last read
        self.mark: int = mark  # the engine's time then

    def read(self, raw: int) -> int:
        """The engine's time now that the wall clock shows `raw`.

        While the wall clock is behind the mark (somebody set it back), the engine's time goes on at half its
        speed until the two have met: due messages come a little late, none early, and no lease stands still.
        """
        if raw >= self.mark:
            self.mark = raw
        else:
            gone_on = max(0, raw - self.raw) // 2
            self.mark += gone_on
        self.raw = raw
        return self.mark
