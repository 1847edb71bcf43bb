"""Engines with one bug each, to show that the contract suite, the model and the history checker find bugs.

A fault has no colour. A method that is named after a verb takes that verb's place: a generator that yields what it
asks of the engine behind it and is sent the answer. All else goes to that engine as it is.
"""

import functools
import inspect
import itertools
from collections.abc import Callable, Generator, Sequence
from typing import Any, TypeAlias, cast

from msgspec.structs import replace

from bide.engines.aio import AsyncEngine
from bide.engines.base import Claim, Claimed, End, Ended, Finding, Hold, Move, NewMessage, Ref, Stored
from bide.engines.registry import Source
from bide.engines.sync import Engine
from bide.types import CancelResult, Sent

Steps: TypeAlias = Generator[Any, Any, Any]


class Fault:
    """No bug: what all others add theirs to. One for a place, whoever opens it."""


class DropsOne(Fault):
    """One message in so many is accepted, but not stored."""

    def __init__(self, every: int = 1_000) -> None:
        self.every = every
        self.count = itertools.count(1).__next__

    def put(self, engine: Any, messages: Sequence[NewMessage], *, now: int | None = None, **how: Any) -> Steps:
        sent: list[Sent] = yield engine.put(messages, now=now, **how)
        dropped = [Ref(each.id) for each in sent if each.outcome == "created" and self.count() % self.every == 0]
        if dropped:
            yield engine.cancel(dropped, now=now)
        return sent


class IgnoresToken(Fault):
    """A delivery is ended by the message's id: whoever holds it by then."""

    def __init__(self) -> None:
        self.tokens: dict[str, str] = {}

    def claim(self, engine: Any, *asked: Any, **how: Any) -> Steps:
        claim: Claim = yield engine.claim(*asked, **how)
        self.tokens |= {each.id: each.token for each in claim.messages}
        return claim

    def settle(self, engine: Any, ends: Sequence[End], **how: Any) -> Steps:
        return (yield engine.settle([replace(end, token=self.tokens.get(end.id, end.token)) for end in ends], **how))

    def extend(self, engine: Any, holds: Sequence[Hold], *asked: Any, **how: Any) -> Steps:
        known = [replace(hold, token=self.tokens.get(hold.id, hold.token)) for hold in holds]
        return (yield engine.extend(known, *asked, **how))


class DeliversEarly(Fault):
    """What is due within 50 ms is handed out when there is nothing else."""

    def __init__(self, by: int = 50) -> None:
        self.by = by
        self.due: dict[str, int] = {}

    def claim(self, engine: Any, topics: Sequence[str], limit: int, lease: int, *, now: int | None = None, **how: Any) -> Steps:
        claim: Claim = yield engine.claim(topics, limit, lease, now=now, **how)
        room = limit - len(claim.messages)
        soon: list[Stored] = []
        for topic in topics if room else ():
            page = yield engine.scan(topic, "scheduled", room, now=now)
            soon += [each for each in page.messages if each.due <= claim.now + self.by]
        if not soon:
            return claim
        self.due |= {each.id: each.due for each in soon}
        yield engine.reschedule([Move(Ref(each.id)) for each in soon], now=now)
        more: Claim = yield engine.claim(topics, room, lease, now=now)
        early = [replace(each, due=self.due.get(each.id, each.due)) for each in more.messages]
        return replace(claim, messages=[*claim.messages, *early])


class ForgetsTheClock(DeliversEarly):
    """Instants go by engine time alone: they come early after the clock was ahead and was set right."""

    def __init__(self) -> None:
        super().__init__(by=0)


class DeliversTwice(Fault):
    """What somebody holds is handed out once more."""

    def __init__(self) -> None:
        self.held: dict[str, Claimed] = {}

    def claim(self, engine: Any, topics: Sequence[str], limit: int, *asked: Any, **how: Any) -> Steps:
        claim: Claim = yield engine.claim(topics, limit, *asked, **how)
        again = [each for each in list(self.held.values()) if each.topic in topics][: limit - len(claim.messages)]
        for each in again:
            self.held.pop(each.id, None)
        self.held |= {each.id: each for each in claim.messages}
        return replace(claim, messages=[*claim.messages, *again])

    def settle(self, engine: Any, ends: Sequence[End], **how: Any) -> Steps:
        for end in ends:
            self.held.pop(end.id, None)
        return (yield engine.settle(ends, **how))


class LiesAboutCancel(Fault):
    """It says that a message is cancelled, and leaves it."""

    def cancel(self, engine: Any, refs: Sequence[Ref], **how: Any) -> Steps:
        found: list[Stored | None] = yield engine.get(refs, now=how.get("now"))
        said = {"leased": CancelResult.RUNNING, "dead": CancelResult.DEAD}
        return [CancelResult.GONE if each is None else said.get(each.state, CancelResult.CANCELLED) for each in found]


class SendsTwice(Fault):
    """Operation and key are not looked at: what is sent twice is there twice."""

    def put(self, engine: Any, messages: Sequence[NewMessage], **how: Any) -> Steps:
        return (yield engine.put([replace(new, key=None, operation=None) for new in messages], **how))


class PopsFirst(Fault):
    """A claim takes the message out of the store: it is gone with its holder, and a retry sends it as a new one."""

    def __init__(self) -> None:
        self.popped: dict[tuple[str, str], Claimed] = {}

    def claim(self, engine: Any, *asked: Any, now: int | None = None, **how: Any) -> Steps:
        claim: Claim = yield engine.claim(*asked, now=now, **how)
        if claim.messages:
            yield engine.settle([End(each.topic, each.id, each.token, "done") for each in claim.messages], now=now)
        self.popped |= {(each.id, each.token): each for each in claim.messages}
        return claim

    def settle(self, engine: Any, ends: Sequence[End], *, now: int | None = None, **how: Any) -> Steps:
        yield engine.settle(ends, now=now, **how)  # which knows nothing of them, and refuses what it has to
        answers: list[Ended] = []
        for end in ends:
            held = self.popped.pop((end.id, end.token), None)
            if held is not None and end.verdict in ("retry", "release"):
                new = NewMessage(held.topic, held.body, end.delay, headers=held.headers, max_attempts=held.max_attempts)
                yield engine.put([new], now=now)
            said: dict[str, Ended] = {"done": "done", "dead": "dead"}
            answers.append("lost" if held is None else said.get(end.verdict, "scheduled"))
        return answers


FAULTS: dict[str, Callable[[], Fault]] = {
    fault.__name__: fault
    for fault in (DropsOne, IgnoresToken, DeliversEarly, ForgetsTheClock, DeliversTwice, LiesAboutCancel, SendsTwice, PopsFirst)
}


class FaultyEngine:
    """An engine of either colour, but for one fault."""

    def __init__(self, engine: AsyncEngine | Engine, fault: Fault) -> None:
        self._engine = engine
        self._fault = fault

    def __getattr__(self, name: str) -> Any:
        plain = getattr(self._engine, name)
        steps = getattr(self._fault, name, None)
        if steps is None:
            return plain
        walk = _walk_async if inspect.iscoroutinefunction(plain) else _walk
        return functools.partial(walk, steps, self._engine)


class FaultySource:
    """A place whose engines all have one fault."""

    def __init__(self, plain: Source, fault: Fault) -> None:
        self.capabilities = plain.capabilities
        self.shown = f"{plain.shown} with {type(fault).__name__}"
        self.namespace = plain.namespace
        self._plain = plain
        self._fault = fault

    def aio(self) -> AsyncEngine:
        return cast(AsyncEngine, FaultyEngine(self._plain.aio(), self._fault))

    def examine(self) -> Sequence[Finding]:
        return self._plain.examine()

    def mend(self) -> Sequence[Finding] | None:
        return self._plain.mend()

    def sync(self) -> Engine:
        return cast(Engine, FaultyEngine(self._plain.sync(), self._fault))


def _walk(steps: Callable[..., Steps], *asked: Any, **how: Any) -> Any:
    walk, answer = steps(*asked, **how), None
    while True:
        try:
            answer = walk.send(answer)
        except StopIteration as end:
            return end.value


async def _walk_async(steps: Callable[..., Steps], *asked: Any, **how: Any) -> Any:
    walk, answer = steps(*asked, **how), None
    while True:
        try:
            asking = walk.send(answer)
        except StopIteration as end:
            return end.value
        answer = await asking
