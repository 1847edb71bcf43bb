"""The end of messages in the queue that they leave, once the other queue has them. What somebody has changed stays there."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from bide.adopt.queue.left import Get, ended_by_others, still
from bide.adopt.queue.moved_message import is_same
from bide.adopt.queue.notes import Batch, Step
from bide.adopt.queue.on_the_way import Log
from bide.engines.base import MAX_BATCH, Ref, Stored
from bide.errors import BideError
from bide.types import CancelResult

if TYPE_CHECKING:
    from bide.engines.sync import Engine

NOTES = 12  # that are cancelled together with messages: their own, and those of two or three batches before


class Ending:
    def __init__(self, engine: "Engine", log: Log, get: Get, done: Callable[[int], list[Ref]]) -> None:
        """`done`: gives notes of batches that are done, at most so many, to be cancelled on the way."""
        together = engine.capabilities.together
        self.whole: bool = together > NOTES  # a step is done as a whole, or not at all
        self._step = (together if self.whole else MAX_BATCH) - NOTES
        self._engine = engine
        self._log = log
        self._get = get
        self._done = done
        self._noted: dict[str, Sequence[Step]] = {}  # by batch, the steps of this run

    def end(self, batch: Batch, messages: Mapping[str, Stored]) -> list[str]:
        """By name. Gives the names of those that somebody has changed or ended."""
        held = {each.id: each for each in messages.values()}
        done = self._noted.get(batch.name, [])
        now, steps = self._looked(batch, done, held)
        gone = [id for id, each in now.items() if each is None]
        there = still((), batch.steps, self._get) if gone and batch.steps and self.whole else []
        purged, ends = set[str](), dict[str, CancelResult]()
        for step in steps:
            if held[step.ids[0]].state == "dead":
                self._engine.purge(held[step.ids[0]].topic, "dead", step.ids)
                purged.update(step.ids)
            else:
                ends |= self._cancelled(step)
        cancelled = {id for id, end in ends.items() if end is CancelResult.CANCELLED}
        late = {id for id, end in ends.items() if end is CancelResult.GONE}
        proofs = cancelled if self.whole else set[str]()
        others = {id for id, each in now.items() if each is not None} - purged - cancelled - late
        others.update(ended_by_others(gone, batch.steps, [*there, *proofs]))
        others.update(ended_by_others(late, [*batch.steps, *done, *steps], proofs))
        return [name for name, each in messages.items() if each.id in others]

    def _looked(
        self, batch: Batch, done: Sequence[Step], held: Mapping[str, Stored]
    ) -> tuple[Mapping[str, Stored | None], Sequence[Step]]:
        """Note what is to be ended, and look: what somebody has changed or ended is not to be taken for ended by us."""
        same = list(held.values())
        while True:
            try:
                steps = self._note(batch, done, self._steps(same))
                now = dict(zip(held, self._get(list(held)), strict=True))
            except BideError:
                self._unnote(batch, done)
                raise
            noted = same
            same = [each for each in noted if (there := now[each.id]) is not None and _is_still(there, each)]
            if len(same) == len(noted):
                self._noted[batch.name] = [*done, *steps]
                return now, steps

    def _note(self, batch: Batch, done: Sequence[Step], steps: Sequence[Sequence[str]]) -> Sequence[Step]:
        """Raises OtherMove if another run has taken over: then nothing has been ended."""
        noted = self._log.note_steps(batch, done, steps)
        self._log.check()
        return noted

    def _unnote(self, batch: Batch, done: Sequence[Step]) -> None:
        with suppress(BideError):  # it fails for another reason already
            self._log.note_steps(batch, done, [])

    def _steps(self, messages: Iterable[Stored]) -> list[list[str]]:
        """What is ended together: the pending, and the dead letters of each topic."""
        together: dict[str, list[str]] = {}
        for each in messages:
            together.setdefault(each.topic if each.state == "dead" else "", []).append(each.id)
        return [ids[at : at + self._step] for ids in together.values() for at in range(0, len(ids), self._step)]

    def _cancelled(self, step: Step) -> Mapping[str, CancelResult]:
        refs = [Ref(id=id) for id in (*step.ids, step.mark)]
        refs += self._done(self._step + NOTES - len(refs))
        return dict(zip(step.ids, self._engine.cancel(refs), strict=False))


def _is_still(now: Stored, held: Stored) -> bool:
    """Whether nobody has changed it."""
    return now.state == "dead" if held.state == "dead" else is_same(now, held)
