"""What a run has in hand: messages that it holds, by their names, and the batches of which something is noted."""

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from bide.adopt.queue.ending import Holding
from bide.adopt.queue.notes import Batch, Mark
from bide.adopt.queue.on_the_way import Log
from bide.engines.base import Stored


class InHand:
    def __init__(self, log: Log, together: int) -> None:
        """`together`: how many end at once."""
        self._log = log
        self._together = together
        self._held: dict[str, Holding] = {}  # by name
        self._met: dict[str, Batch] = {}  # by name, those of which something is noted
        self._open: Counter[str] = Counter()  # by batch, how many are held
        self._done: dict[str, Batch] = {}  # by name: have been moved, and their notes are still there
        self._unsettled: list[Batch] = []  # copies of what was changed after a kill are being taken back

    @property
    def ids(self) -> Collection[str]:
        """Of the messages."""
        return {each.message.id for each in self._held.values()}

    @property
    def is_empty(self) -> bool:
        return not (self._held or self._unsettled)

    def add(self, batches: Sequence[Batch]) -> None:
        self._met |= {each.name: each for each in batches}

    def meet(self, batch: Batch) -> bool:
        """Whether it is new, of a run before. Of a batch that is known its note is due at another time now."""
        known = self._met.setdefault(batch.name, batch)
        known.noted = batch.noted
        return known is batch

    def is_open(self, batch: Batch) -> bool:
        """Whether a part of it is held."""
        return bool(self._open[batch.name])

    def waits(self, batch: Batch) -> bool:
        """Whether a part of it is held, or not settled."""
        return self.is_open(batch) or batch in self._unsettled

    def hold(self, batch: Batch, mark: Mark, message: Stored, away: int) -> str:
        """Gives its name."""
        name = batch.named(mark)
        self._held[name] = Holding(batch, message, away)
        self._open[batch.name] += 1
        return name

    def let_go(self, names: Sequence[str]) -> Iterator[tuple[Batch, dict[str, Holding]]]:
        """The messages by their names, by batch, and by what can end together: the queue may have had more shards before."""
        of: dict[str, list[str]] = {}
        for name in names:
            of.setdefault(self._held[name].batch.name, []).append(name)
        for named in of.values():
            for first in range(0, len(named), self._together):
                held = {name: self._held.pop(name) for name in named[first : first + self._together]}
                [batch] = {each.batch.name: each.batch for each in held.values()}.values()
                self._open[batch.name] -= len(held)
                yield batch, held

    def end(self, batch: Batch) -> None:
        """What is noted of it can go, unless a part of it is held."""
        if not self.is_open(batch):
            del self._open[batch.name]
            if batch.notes:
                self._done[batch.name] = batch
            else:
                self._met.pop(batch.name, None)

    def settle_later(self, batch: Batch) -> None:
        self._unsettled.append(batch)

    def settle(self) -> None:
        """Copies of what was changed after an earlier run was killed have been taken back."""
        unsettled, self._unsettled = self._unsettled, []
        for batch in unsettled:
            self.end(batch)

    def tidy(self, most: int) -> None:
        """Remove the notes of batches that are done, if they are more than so many. Raises OtherMove."""
        if len(self._done) > most:
            self._log.take_off(list(self._done.values()))
            for name in self._done:
                self._met.pop(name, None)
            self._done = {}
