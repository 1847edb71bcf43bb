"""Several sources as one, such as the lists of a queue: each is taken from until it has no more, in turn."""

from collections.abc import Sequence

from bide.adopt.source import Entries, Found, Held, Names, Refused, Source


class Several:
    """What is taken keeps the name that its own source gave it, which no other source has given."""

    def __init__(self, kind: str, shown: str, sources: Sequence[Source]) -> None:
        self._kind = kind
        self._shown = shown
        self._sources = sources
        self._of: dict[str, Source] = {}

    @property
    def kind(self) -> str:
        return self._kind

    @property
    def shown(self) -> str:
        return self._shown

    def aim(self, destination: str) -> None:
        for each in self._sources:
            each.aim(destination)

    def count(self) -> int | None:
        counts = [each.count() for each in self._sources]
        return sum(each or 0 for each in counts) if None not in counts else None

    def peek(self, limit: int) -> Entries:
        seen = [each.peek(limit) for each in self._sources]
        found = sorted((found for each in seen for found in each.found), key=lambda found: found.message.at or 0)
        return Entries(found, [refused for each in seen for refused in each.refused])

    def held(self) -> Held:
        found, refused, ended, age, unsure = list[Found](), list[Refused](), list[Found](), 0.0, False
        for source in self._sources:
            held = source.held()
            self._note(source, [*(each.name for each in held.found), *(each.held for each in held.refused)])
            found += held.found
            refused += held.refused
            ended += held.ended
            age = max(age, held.age)
            unsure = unsure or held.unsure
        return Held(found, refused, age, unsure, ended)

    def take(self, limit: int) -> Entries:
        refused, gone = list[Refused](), 0
        for source in self._sources:
            taken = source.take(limit)
            refused += taken.refused
            gone += taken.gone
            if taken.found or taken.gone:
                self._note(source, [*(each.name for each in taken.found), *(each.held for each in taken.refused)])
                return Entries(taken.found, refused, gone)
        return Entries((), refused, gone)

    def finish(self, names: Sequence[str], changed: Names) -> None:
        for source, part in self._parts(names):
            source.finish(part, changed)
        for name in names:
            self._of.pop(name, None)

    def give_back(self, names: Sequence[str]) -> None:
        for source, part in self._parts(names):
            source.give_back(part)

    def settle(self) -> None:
        for each in self._sources:
            each.settle()

    def close(self) -> None:
        for each in self._sources:
            each.close()

    def _note(self, source: Source, names: Sequence[str]) -> None:
        self._of.update(dict.fromkeys(names, source))

    def _parts(self, names: Sequence[str]) -> list[tuple[Source, list[str]]]:
        parts = [(source, [name for name in names if self._of[name] is source]) for source in self._sources]
        return [(source, part) for source, part in parts if part]
