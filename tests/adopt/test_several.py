"""Several sources as one: what each of them says is passed on."""

from collections.abc import Sequence

from bide.adopt.adoption import Several
from bide.adopt.source import EarlierRun, Entries, FoundEntry, Names
from bide.engines.base import NewMessage


class Changing:
    """A source with one entry, which is changed there as soon as it was taken."""

    kind: str = "test"
    shown: str = "a test"

    def __init__(self, name: str) -> None:
        self._found = [FoundEntry(name, NewMessage("t", b"1"))]

    def aim(self, destination: str) -> None: ...

    def count(self) -> int | None:
        return 1

    def peek(self, limit: int) -> Entries:
        return Entries(self._found[:limit])

    def held(self) -> EarlierRun:
        return EarlierRun(ended=self._found)

    def take(self, limit: int) -> Entries:
        taken, self._found = self._found[:limit], self._found[limit:]
        return Entries(taken)

    def finish(self, names: Sequence[str], changed: Names) -> None:
        changed(names)

    def give_back(self, names: Sequence[str]) -> None: ...

    def settle(self) -> None: ...

    def close(self) -> None: ...


def test_what_was_changed_at_one_of_the_sources_is_told() -> None:
    both = Several("test", "both", [Changing("one"), Changing("two")])
    assert [each.name for each in both.held().ended] == ["one", "two"]
    taken = [each.name for _ in range(2) for each in both.take(10).found]
    assert taken == ["one", "two"]
    told: list[str] = []
    both.finish(taken, told.extend)
    assert told == taken
