"""The wheel itself, in whole ticks: which timers wait in which slot, and which are due.

A slot of level 0 holds the timers of one tick; a slot of the next level holds those of as many ticks as a level has slots,
and so on. A timer waits in the lowest level whose present slot of the level above is also its own. Before time enters a slot
of a higher level, its timers move down. So all timers of one tick keep the order in which they came.

Not thread-safe by itself: used under the lock that its timers share.
"""

from heapq import heappop, heappush

from bide.timers.timer import Row, Timer

NEVER = 1 << 62
BATCH = 500  # timers that move down in one step


class Levels:
    def __init__(self, slots: int, tick: int) -> None:
        self._tick = tick
        self.due: Row = Row()  # what the last turn has brought and nobody has taken yet
        self._late = Row()  # what was due already when it came: for the next turn
        self._bits = slots.bit_length() - 1
        # So many ticks before its time a higher slot begins to move down: a full one takes a while, and nothing is late for it.
        self._ahead = slots // 2
        self._position = 0  # the tick up to which all is in `due`
        self._levels: list[dict[int, Row]] = [{}]  # by the number of the slot
        self._ticks: list[int] = []  # a heap of level 0's slots
        self._higher: list[tuple[int, int]] = []  # a heap of the other levels' slots: their first tick, their level negated

    def add(self, timer: Timer, now: int) -> bool:
        """True if its slot comes before all others, so that whoever sleeps until the first one sleeps too long."""
        due = timer._due
        if due <= self._position:
            self._late.append(timer)
            return True
        level = ((due ^ self._position).bit_length() - 1) // self._bits
        try:
            row = self._levels[level][due >> level * self._bits]
        except LookupError:
            first = self._first()
            now //= self._tick
            if self._position < now < first:  # nobody has turned the wheel for a while, there being nothing to do
                self._position = min(now, due - 1)
            self._row(due, self._position).append(timer)
            return self._first() < first
        row.append(timer)
        return False

    def turn(self, now: int) -> bool:
        """Bring what is due by now into `due`, in order. One short step of it: True when there is more to do."""
        if self._late:
            self.due.take_over(self._late)
            self._late = Row()
        limit = now
        if self._higher and self._higher[0][0] <= now:
            limit = self._higher[0][0] - 1  # from there on, timers are still to come down
        while self._ticks and self._ticks[0] <= limit:
            self.due.take_over(self._levels[0].pop(heappop(self._ticks)))
        self._position = max(self._position, limit)
        return self._move_down(now)

    def next_turn(self, now: int) -> int:
        """The tick at which to turn again, or NEVER. Slots that cancels have emptied are not waited for."""
        while self._ticks and not self._levels[0][self._ticks[0]]:
            self._levels[0].pop(heappop(self._ticks)).done_with()
        while self._higher and self._higher[0][0] > now + self._ahead and not self._lowest():
            self._drop_lowest()
        if self._higher and self._lowest():
            return min(self._first(), self._higher[0][0] - self._ahead)
        return self._first()

    def take_all(self) -> list[Timer]:
        """All timers in the order in which they would have fired; none is left."""
        rows = [self.due, self._late, *(row for level in self._levels for row in level.values())]
        timers = [timer for row in rows for timer in row]
        timers.sort(key=lambda timer: timer._due)  # of one tick, those on a lower level came first
        for row in rows:
            while row.take_first():
                pass
        return timers

    def _first(self) -> int:
        """The first tick of the first slot."""
        tick = self._ticks[0] if self._ticks else NEVER
        return min(tick, self._higher[0][0]) if self._higher else tick

    def _row(self, due: int, origin: int) -> Row:
        """Where a timer waits while time is still at the origin, or before the slot that begins there."""
        level = ((due ^ origin | 1).bit_length() - 1) // self._bits
        while level >= len(self._levels):
            self._levels.append({})
        number = due >> level * self._bits
        row = self._levels[level].get(number)
        if row is None:
            row = self._levels[level][number] = Row()
            if level:
                heappush(self._higher, (number << level * self._bits, -level))
            else:
                heappush(self._ticks, number)
        return row

    def _lowest(self) -> Row:
        """The row of the higher slot that comes first; of those that begin together, the highest."""
        begin, negated = self._higher[0]
        return self._levels[-negated][begin >> -negated * self._bits]

    def _drop_lowest(self) -> None:
        begin, negated = heappop(self._higher)
        self._levels[-negated].pop(begin >> -negated * self._bits).done_with()

    def _move_down(self, now: int) -> bool:
        """Take some timers of the next higher slot to lower ones, if it is time. True when there is more to do.

        Time has not entered the slot before it is empty. Until then what is added goes into it too, and so behind the others.
        """
        if not self._higher or self._higher[0][0] > now + self._ahead:
            return False
        begin, row = self._higher[0][0], self._lowest()
        for _ in range(BATCH):
            timer = row.take_first()
            if timer is None:
                if begin > now:
                    return False  # the slot stays until its time, since it may well be filled again
                self._drop_lowest()
                break
            self._row(timer._due, begin).append(timer)
        return True
