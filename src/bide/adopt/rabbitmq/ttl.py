"""A queue with a TTL: its messages are got, noted in a file, taken from the broker, and then put.

The broker keeps what was got aside, and would let it expire as before if the adopter ended. It forgets a batch in one
transaction, so a run that finds all messages of a batch in the queue, or none, knows what became of it.
"""

import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from bide.adopt.rabbitmq.broker import Broker
from bide.adopt.rabbitmq.notebook import Letter, Notebook, NotebookEntry, Waits, due, letter, message
from bide.adopt.shape import Shape
from bide.adopt.source import EarlierRun, Entries, FoundEntry, Names, RefusedEntry, UnreadableEntry, new_take
from bide.errors import OutcomeUnknown, Unavailable

LOOKED_THROUGH = 5_000  # messages at the head of the queue, where the broker puts what comes back
SOON = 2_000  # ms before its time, a message that can't be read goes back to the queue


class _Got(NamedTuple):
    tag: int
    letter: Letter
    again: bool  # it was in somebody's hands before


class TTLQueue:
    """`file`: where what was taken is kept."""

    def __init__(self, broker: Broker, waits: Waits, file: Path, shape: Shape, *, look_only: bool = False) -> None:
        self._broker = broker
        self._waits = waits
        self._shape = shape
        self._look_only = look_only
        self._notebook = Notebook(file, f"{broker.shown} {waits.queue}", look_only=look_only)
        self._ahead: list[_Got] = []  # got, and not looked at yet
        self._left: list[tuple[int, int]] = []  # of what can't be read: when it is due, and its tag
        self._kept: dict[str, NotebookEntry] = {}
        self._destination = ""
        self.guessed: int = 0  # messages that were looked at or adopted, and do not tell when they came
        self._guesses: set[str] = set()  # names of those that are taken

    @property
    def kind(self) -> str:
        return "rabbitmq-ttl"

    @property
    def shown(self) -> str:
        return f"{self._waits.queue} at {self._broker.shown}"

    def count(self) -> int | None:
        return self._broker.count()

    def peek(self, limit: int) -> Entries:
        """The broker marks them as redelivered, and keeps them aside until the command ends."""
        found, refused = list[FoundEntry](), list[RefusedEntry]()
        for each in self._get(limit):
            try:
                at, known = due(each.letter, self._waits)
                found.append(FoundEntry(_name(each.letter), message(each.letter, at, self._waits, self._shape)))
                self.guessed += not known
            except UnreadableEntry as error:
                refused.append(RefusedEntry(_name(each.letter), str(error)))
        return Entries(found, refused)

    def aim(self, destination: str) -> None:
        self._destination = destination

    def held(self) -> EarlierRun:
        kept = self._notebook.kept()
        if not self._look_only:
            kept = self._still_ours(kept)
        now = time.time_ns() // 1_000_000
        unsure = any(each.phase == "taking" for each in kept)
        found, refused = list[FoundEntry](), list[RefusedEntry]()
        for each in kept:
            self._kept[each.name] = each
            try:
                found.append(FoundEntry(each.name, message(each.letter, each.due, self._waits, self._shape)))
            except UnreadableEntry as error:
                refused.append(RefusedEntry(_name(each.letter), str(error), each.name))
            with suppress(UnreadableEntry):  # its TTL may have been an option of the run before
                if not due(each.letter, self._waits)[1]:
                    self._guesses.add(each.name)
        age = (now - min(each.since for each in kept)) / 1000 if kept else 0.0
        return EarlierRun(found, refused, max(0.0, age), unsure)

    def take(self, limit: int) -> Entries:
        refused: list[RefusedEntry] = []
        while True:
            taken = self._take_some(limit)
            refused += taken.refused
            if taken.found or not taken.refused:  # behind those that can't be read there may be others
                return Entries(taken.found, refused)

    def _take_some(self, limit: int) -> Entries:
        self._return_what_is_due()
        wanted, refused, taking = (
            list[tuple[_Got, NotebookEntry, FoundEntry]](),
            list[RefusedEntry](),
            new_take(self._destination),
        )
        now = time.time_ns() // 1_000_000
        for each in self._next(limit):
            at = 0
            try:
                at, known = due(each.letter, self._waits)
                name = f"{now}-{taking}-{len(wanted):06}"
                found = FoundEntry(name, message(each.letter, at, self._waits, self._shape))
            except UnreadableEntry as error:
                self._left.append((at, each.tag))
                refused.append(RefusedEntry(_name(each.letter), str(error)))
                continue
            if not known:
                self._guesses.add(name)
            wanted.append((each, NotebookEntry(name, "got", now, at, each.letter), found))
        if wanted:
            self._take(wanted)
        return Entries([found for _, _, found in wanted], refused)

    def finish(self, names: Sequence[str], changed: Names) -> None:
        guessed = len(self._guesses.intersection(names))
        self._forget(names)
        self.guessed += guessed

    def _forget(self, names: Sequence[str]) -> None:
        self._notebook.forget(names)
        self._guesses.difference_update(names)
        for name in names:
            self._kept.pop(name, None)

    def settle(self) -> None:
        """It tells nothing of what was changed or ended."""

    def give_back(self, names: Sequence[str]) -> None:
        now = time.time_ns() // 1_000_000
        letters = [(self._kept[name].letter, max(0, self._kept[name].due - now)) for name in names]
        sent: list[Letter] = []
        try:
            self._broker.publish(letters, sent.append)
        finally:
            self._forget(names[: len(sent)])  # the rest is still ours, if the broker did not take all

    def close(self) -> None:
        self._notebook.close()
        self._broker.close()

    def _take(self, wanted: Sequence[tuple[_Got, NotebookEntry, FoundEntry]]) -> None:
        names = [kept.name for _, kept, _ in wanted]
        self._notebook.write([(kept.name, kept.due, kept.letter) for _, kept, _ in wanted])
        self._notebook.mark(names, "taking")
        try:
            self._broker.take([got.tag for got, _, _ in wanted])
        except (Unavailable, OutcomeUnknown):
            raise Unavailable(f"{self._broker.shown} did not answer. Run the command again: it goes on.") from None
        self._notebook.mark(names, "taken")
        self._kept |= {kept.name: kept for _, kept, _ in wanted}

    def _still_ours(self, kept: list[NotebookEntry]) -> list[NotebookEntry]:
        """What a run has taken that was stopped: what the broker has again, is forgotten here."""
        got = [each.name for each in kept if each.phase == "got"]
        if got:
            self._notebook.forget(got)
        taking = [each for each in kept if each.phase == "taking"]
        if taking:
            there = self._there_again({each.letter.digest() for each in taking})
            soon = time.time_ns() // 1_000_000 + SOON
            lasting = Counter(each.letter.digest() for each in taking if each.due > soon)
            if lasting and there >= lasting:
                self._notebook.forget([each.name for each in taking])
            elif lasting and not there:  # it would be there, or else the broker has forgotten all
                self._notebook.mark([each.name for each in taking], "taken")
        return self._notebook.kept()

    def _there_again(self, digests: set[str]) -> Counter[str]:
        """How many of each are in the queue again: these, or others that are equal. What is got for it, is taken next."""
        there = Counter[str]()
        while len(self._ahead) < LOOKED_THROUGH:
            more = self._get(100)
            self._ahead += more
            there.update(each.letter.digest() for each in more if each.again)
            if len(more) < 100:
                break
        return Counter({digest: number for digest, number in there.items() if digest in digests})

    def _next(self, limit: int) -> list[_Got]:
        if not self._ahead:
            return self._get(limit)
        first, self._ahead = self._ahead[:limit], self._ahead[limit:]
        return first

    def _get(self, limit: int) -> list[_Got]:
        return [_Got(each.delivery.delivery_tag, letter(each), each.delivery.redelivered) for each in self._broker.get(limit)]

    def _return_what_is_due(self) -> None:
        """Messages that can't be read expire when they would have, without the adopter."""
        until = time.time_ns() // 1_000_000 + SOON
        if due_now := [tag for at, tag in self._left if 0 < at < until]:
            self._broker.put_back(due_now)
            self._left = [(at, tag) for at, tag in self._left if not 0 < at < until]


def _name(found: Letter) -> str:
    return found.message_id or found.body[:100].decode(errors="backslashreplace")


def opened(url: str, waits: Waits, file: Path, shape: Shape, *, look_only: bool) -> TTLQueue:
    broker: Any = Broker(url, waits.queue)
    try:
        return TTLQueue(broker, waits, file, shape, look_only=look_only)
    except BaseException:
        broker.close()
        raise
