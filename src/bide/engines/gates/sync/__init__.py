# Generated from ../aio.py by tools/unasync.py; change that file instead.
"""The seam's side door: the verbs of gates. As with the engine's verbs, every line that begins with a dash is a promise."""

from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence

from bide.engines.gates import Entered, Entry, Held, Left, Spend, Spent


class Gates(ABC):
    """Of one engine, open while it is, whose tend takes back places whose lease has ended.

    Batch first; times and `now` as in the engine's verbs.

    - Gates of one name in two namespaces are two gates.
    - Gates leave nothing behind.
    """

    def part_of(self, gate: str) -> Hashable:
        """Which parts of the engine have this gate, as the engine's part_of tells of messages."""
        return None

    @abstractmethod
    def enter(self, entries: Sequence[Entry], *, now: int | None = None) -> list[Entered]:
        """Take places, each answered for itself, in the order of the batch.

        - A gate lets in as many as it has places.
        - The same holder enters once.
        - A place is free when its lease has ended.
        - A wider or narrower gate counts from the next entry.
        - Gate tokens rise as text with each entry.
        - A newcomer does not overtake who waits.
        - A waiter keeps its place in the line.
        - Who does not wait is forgotten.
        - A waiter that no longer asks leaves the line.
        - A waiter that asks again in time keeps its place in the line.
        - A waiter that asks again too late goes to the end of the line.
        - Who finds no place is told when one is free.
        """

    @abstractmethod
    def keep(self, held: Sequence[Held], lease: int, *, brief: bool = False, now: int | None = None) -> list[bool]:
        """Let places end so many milliseconds from now; False for a place that is lost. `brief` as with the leases of
        deliveries: a part of the engine that does not answer is not waited for.

        - A kept place ends later.
        - A late keep counts until the place is taken back.
        - An old token keeps no place.
        """

    @abstractmethod
    def leave(self, held: Sequence[Held], *, now: int | None = None) -> Left:
        """Give places back, or leave the line.

        - A place that was left is free at once.
        - Who waited longest is called first.
        - A place is kept for who was called.
        - An old token frees no place.
        - A waiter that leaves the line is not called.
        - A waiter that leaves when it was called passes its turn on.
        - Waiters that no longer ask are not called.
        """

    @abstractmethod
    def spend(self, spends: Sequence[Spend], *, now: int | None = None) -> list[Spent]:
        """Take instants at which something may begin.

        - No window holds more than its count.
        - What may not begin yet is told when.
        - An instant to come is kept for its holder.
        - Who comes late for its instant begins when the rate lets it.
        - Nobody waits for who does not come for its instant.
        - A rate is used up to a hundredth.
        - A new rate counts what was spent at the old one.
        """
