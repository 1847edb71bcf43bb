"""What a move notes in its queue about messages that are on their way, and how it is read after a kill.

A note is a message of a topic of its own: one for each batch that is on its way, which ends with it; one for each step in which
a part of a batch is ended, and one more that ends with these; one that says what of a batch somebody has changed; and one that
names the run which moves them.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from bide.adopt.queue.moved_message import fingerprint
from bide.core.formats import plural, span
from bide.core.times import MAX_DELAY_MS
from bide.engines.base import MAX_BATCH, Condition, Finding, Ref, Stored
from bide.queue.choosing import complete
from bide.queue.schedules.records import MOVING

if TYPE_CHECKING:
    from bide.engines.sync import Engine

FOR_GOOD = MAX_DELAY_MS
OWNER, BATCH, ENDS, STEP, CHANGED = "owner", "batch", "ends", "step", "changed"  # keys, or what they begin with
ADVICE = (
    "If no `bide move` is running, one was stopped on its way, and no worker gets these messages. Run the same command again: "
    "it goes on with them, or asks what to do if the kill was more than nine minutes ago."
)


class Mark(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A message that is on its way, as it was listed."""

    id: str
    print: str
    topic: str
    key: str | None
    dead: bool
    due: int
    attempt: int


def mark_of(message: Stored) -> Mark:
    dead = message.state == "dead"
    return Mark(message.id, fingerprint(message), message.topic, message.key, dead, message.due, message.attempt)


class Note(msgspec.Struct, frozen=True):
    """Of a batch, as it is stored."""

    destination: str
    marks: Sequence[Mark]
    began: int = 0  # by the clock of the queue, when the run that noted it took over
    whole: bool = False  # what it ends of it, it ends as a whole


class Step(NamedTuple):
    """Messages of a batch that end together, but not with all of it."""

    ids: Sequence[str]
    mark: str = ""  # the id of the note that ends with them; empty if there is none
    noted: int = 0  # when that is due


class Batch(msgspec.Struct):
    """Messages that are moved together."""

    name: str  # of this batch alone
    marks: Sequence[Mark]
    destination: str = ""
    began: int = 0  # when the run that noted it took over
    whole: bool = False  # its steps were done as a whole or not at all
    noted: int = 0  # when its own note is due
    steps: list[Step] = msgspec.field(default_factory=list)  # that earlier runs have done, or were going to do
    changed: set[str] = msgspec.field(default_factory=set)  # ids of those that somebody has changed or ended
    unread: bool = False  # another release has noted something about it
    own: str = ""  # the id of its own note
    notes: list[str] = msgspec.field(default_factory=list)  # and of all that is noted about it

    @property
    def condition(self) -> Condition:
        """That nobody has taken it over."""
        return Condition(self.own, self.noted)

    @property
    def since(self) -> int:
        """When it was begun, by the clock of the queue, in ms."""
        return self.noted - FOR_GOOD

    @property
    def ids(self) -> list[str]:
        return [each.id for each in self.marks]

    def named(self, mark: Mark) -> str:
        """The name of a message in this batch: what is sent again after a kill is told by it."""
        return f"{self.name}/{mark.id}/{mark.print}"


def notes_of(batch: Batch) -> list[Ref]:
    return [Ref(id=id) for id in dict.fromkeys(batch.notes)]


def destinations(engine: "Engine") -> set[str]:
    """Where moves from this queue go, or went when they were stopped."""
    batches, _ = batches_of(engine)
    return {each.destination for each in batches}


def stopped_moves(engine: "Engine") -> list[Finding]:
    """What an operator should know of messages that are on their way, perhaps since a run that was killed."""
    batches, _ = batches_of(engine)
    if not batches:
        return []
    count = sum(len(each.marks) for each in batches)
    where = ", ".join(sorted({each.destination for each in batches}))
    value = f"up to {plural(count, 'message')} since {span(age_of(engine, batches)) or '0s'}, to {where}"
    return [Finding("moving", value, "warn", ADVICE)]


def batches_of(engine: "Engine") -> tuple[list[Batch], list[str]]:
    """And the ids of notes about batches that are no longer there."""
    stored = list(_notes(engine))
    found = {each.name: each for each in map(_batch, stored) if each is not None}
    marks = {(each.key or "").removeprefix(f"{STEP}/"): (each.id, each.due) for each in stored}
    strays: list[str] = []
    for each in stored:
        kind, _, about = (each.key or "").partition("/")
        batch = found.get(about.partition("/")[0])
        if kind in (OWNER, BATCH):
            continue
        if batch is None:
            strays.append(each.id)
            continue
        batch.notes.append(each.id)
        if kind == CHANGED:
            batch.changed |= msgspec.json.decode(each.body, type=set[str])
        elif kind == ENDS:
            batch.steps.append(Step(msgspec.json.decode(each.body, type=list[str]), *marks.get(about, ("", 0))))
        elif kind != STEP:
            batch.unread = True
    return list(found.values()), strays


def _notes(engine: "Engine") -> Iterator[Stored]:
    after: str | None = None
    while True:
        page = complete(engine.scan(MOVING, "scheduled", MAX_BATCH, after))
        yield from page.messages
        if (after := page.after) is None:
            return


def _batch(stored: Stored) -> Batch | None:
    kind, _, name = (stored.key or "").partition("/")
    if kind != BATCH:
        return None
    note = msgspec.json.decode(stored.body, type=Note)
    known = (note.destination, note.began, note.whole, stored.due)
    return Batch(name, note.marks, *known, own=stored.id, notes=[stored.id])


def age_of(engine: "Engine", batches: Sequence[Batch]) -> float:
    """Seconds since the first of them was begun."""
    return _since(engine, min((each.since for each in batches), default=None))


def idle(engine: "Engine", batches: Sequence[Batch]) -> float:
    """Seconds since the last one was begun."""
    return _since(engine, max((each.since for each in batches), default=None))


def _since(engine: "Engine", began: int | None) -> float:
    return 0.0 if began is None else max(0, engine.claim([], 1, 1_000).now - began) / 1000
