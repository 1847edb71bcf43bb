"""Overdue messages in a worker: what their task says of them is done before their handlers are called."""

from collections.abc import Hashable
from typing import Protocol

from bide.errors import EngineError
from bide.queue.aio.catching_up import AsyncCatchingUp
from bide.queue.batching import Collector, Line
from bide.queue.tasks.outcome import Outcome
from bide.worker.handling import Handling
from bide.worker.retry import Retrying


class Waiting(Protocol):
    """Who is told what becomes of an overdue message."""

    def goes_on(self, handling: Handling) -> None: ...
    def refused(self, handling: Handling, became: Outcome) -> None: ...
    def set_aside(self, handling: Handling) -> None: ...


class CatchingUp(Collector[Handling]):
    def __init__(self, deciding: AsyncCatchingUp, waiting: Waiting) -> None:
        super().__init__()
        self._deciding = deciding
        self._waiting = waiting
        self._retrying = Retrying("decide what becomes of overdue messages")

    def part_of(self, entry: Handling) -> Hashable:
        return self._deciding.part_of(entry.task, entry.delivery.id)

    def stalls(self, line: Line[Handling]) -> None:
        stalled, line.waiting = [*line.under_way, *line.waiting], []
        for each in stalled:
            self._waiting.set_aside(each)

    async def one_call(self, line: Line[Handling], batch: list[Handling]) -> None:
        """All of one topic; the others come next."""
        late = [each for each in batch if not each.told]
        if not late:
            return
        topic = late[0].delivery.topic
        own = [each for each in late if each.delivery.topic == topic]
        now = max(each.delivery.now for each in own)
        try:
            answers = await self._deciding.decide(own[0].task, [each.delivery.claimed for each in own], now)
        except EngineError as error:
            line.bring_again(late)
            await self._retrying.lose(error, line.part)
            return
        self._retrying.regain(line.part)
        line.waiting[:0] = [each for each in late if each.delivery.topic != topic]
        for handling, became in zip(own, answers, strict=True):
            if handling.told:
                continue
            if became is None:
                self._waiting.goes_on(handling)
            else:
                self._waiting.refused(handling, became)
