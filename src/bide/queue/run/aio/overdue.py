# unasync: ../sync/overdue.py
"""The step of an overdue message: the newest of each value is called, or all are, at a rate."""

from collections.abc import Hashable, Sequence

from bide.core.formats import plural
from bide.engines.aio import AsyncEngine
from bide.engines.base import ANY_PART, MAX_BATCH, Claimed, Ref
from bide.engines.gates import Spend
from bide.errors import BadMessage
from bide.logs import Log
from bide.queue.batching import joined
from bide.queue.bulk import complete
from bide.queue.envelope import Envelope
from bide.queue.run import Message
from bide.queue.tasks.definition import Definition
from bide.queue.tasks.limits import Overdue, Survey, is_first
from bide.queue.tasks.outcome import DONE, Outcome
from bide.types import State

_log = Log("bide.tasks")
_NEVER = 2**62
_WHERE: tuple[State, ...] = ("ready", "leased")  # in this order: what is claimed meanwhile is seen as leased


class AsyncOverdueStep:
    what: str = "decide what becomes of overdue messages"  # in a log

    def __init__(self, engine: AsyncEngine, envelope: Envelope) -> None:
        self._engine = engine
        self._envelope = envelope
        self._surveys: dict[str, Survey] = {}
        self._left_out = 0
        self._lines: dict[str, int] = {}  # by gate: the last instant that was given, as far as is known here

    def part_of(self, message: Message) -> Hashable:
        """The parts of the engine that are asked; the newest of a value may be in any."""
        overdue = message.task.overdue
        own = self._engine.part_of(Ref(message.claimed.id))
        if own is None or overdue is None:
            return None
        return ANY_PART if overdue.rate is None else joined([own, self._engine.gates.part_of(overdue.gate)])

    def together(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Those that are decided by one call: of one topic."""
        topic = messages[0].claimed.topic
        return [each for each in messages if each.claimed.topic == topic]

    async def decide(self, messages: Sequence[Message]) -> list[Outcome | None]:
        """None: it goes on. DONE: it is left out."""
        task = messages[0].task
        assert task.overdue is not None
        now = max(each.now for each in messages)
        late = [each.claimed for each in messages]
        if task.overdue.rate is None:
            answers = await self._latest(task, task.overdue, late, now)
        else:
            answers = await self._at_a_rate(task.overdue, late, now)
        if left_out := answers.count(DONE):
            self._tell(task, left_out)
        return answers

    def _tell(self, task: Definition, left_out: int) -> None:
        """Once at WARNING each time that the count has doubled: there may be a million."""
        before, self._left_out = self._left_out, self._left_out + left_out
        tell = _log.warning if self._left_out.bit_length() > before.bit_length() else _log.info
        tell("catch_up of %s leaves out %s; %d so far", task.name, plural(left_out, "overdue message"), self._left_out)

    async def _latest(self, task: Definition, overdue: Overdue, late: Sequence[Claimed], now: int) -> list[Outcome | None]:
        topic = late[0].topic
        survey = self._surveys.get(topic)
        if survey is None or survey.until < max(each.due for each in late):
            survey = self._surveys[topic] = await self._survey(task, overdue, topic, now)
        answers: list[Outcome | None] = []
        for each in late:
            value = self._value(task, overdue, each.body)
            answers.append(DONE if value is not None and survey.leaves_out(value, each) else None)
        return answers

    async def _survey(self, task: Definition, overdue: Overdue, topic: str, now: int) -> Survey:
        """Look at all that is due."""
        survey = Survey(now)
        for state in _WHERE:
            after: str | None = None
            while True:
                page = complete(await self._engine.scan(topic, state, MAX_BATCH, after))
                for stored in page.messages:
                    value = self._value(task, overdue, stored.body) if is_first(stored) else None
                    if value is not None:
                        survey.add(value, stored)
                after = page.after
                if after is None or (state == "ready" and page.messages and page.messages[-1].due > now):
                    break
        survey.close()
        return survey

    def _value(self, task: Definition, overdue: Overdue, body: bytes) -> str | None:
        """None for a message that does not fit its task: the call of its handler says so."""
        if overdue.per is None:
            return ""
        try:
            return overdue.value(task.arguments.with_defaults(task.arguments.of_message(self._envelope.body(body))))
        except BadMessage:
            return None
        except Exception as error:  # of the arguments, as they are written into the text
            _log.debug("A message of %s has no value of its own: %s", task.name, error)
            return None

    async def _at_a_rate(self, overdue: Overdue, late: Sequence[Claimed], now: int) -> list[Outcome | None]:
        """Each gets the next free instant. One that will have expired by then is left out."""
        assert overdue.rate is not None
        stored = await self._engine.get([Ref(id=each.id) for each in late])
        expires = {each.id: found.expires for each, found in zip(late, stored, strict=True) if found and found.expires}
        line = self._lines.get(overdue.gate, now)  # if it is to come, nobody gets an instant before its end
        going = [each.id for each in late if line <= now or expires.get(each.id, _NEVER) > line]
        spends = [Spend(overdue.gate, overdue.rate.most, overdue.rate.window, holder=each) for each in going]
        answers: dict[str, Outcome | None] = {}
        for each, spent in zip(going, await self._engine.gates.spend(spends) if spends else (), strict=True):
            [at] = spent.at
            if at <= spent.now:
                answers[each] = None
            else:
                answers[each] = Outcome("release", at - spent.now, called=False) if at < expires.get(each, _NEVER) else DONE
                self._lines[overdue.gate] = max(at, self._lines.get(overdue.gate, 0))
        return [answers.get(each.id, DONE) for each in late]
