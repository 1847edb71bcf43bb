"""Hypothesis rules that drive an engine and the model together, and shrink the history that fails.

`python -m tests.model.hypothesis_rules memory:// --examples 200 --steps 100 --seeds 10` checks the engine of a URL.
"""

import argparse
import math
import secrets
import sys
import time
import traceback
from collections.abc import Iterable, Sequence
from typing import ClassVar, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from msgspec.structs import replace

from bide.clock import ManualClock
from bide.engines.base import (
    OPERATION_MS,
    Capabilities,
    Claimed,
    End,
    Hold,
    Move,
    NewMessage,
    Origin,
    Ref,
    Seen,
    Settings,
    Verdict,
    Window,
)
from bide.engines.registry import Source, source
from bide.errors import BadOption, BadTime, BideError, ConfigError
from bide.types import State
from tests.model import strategies
from tests.model.expected import Expected
from tests.model.model import Model, operation_of
from tests.model.runner import MakeSource, Runner
from tests.model.strategies import KEYS, TOPICS, Act, Ending, Pointer, way

T = TypeVar("T")

AT_ONCE = 10  # histories
SEEDS = 100_000  # of the histories of one seed, at most

DEAD_FOR = 3_600_000
DEAD_MAX = 3


class EngineMachine(RuleBasedStateMachine):
    """Histories of an engine, each step judged by the model. `machine_for` makes one for an engine.

    Steps are drawn from one rule, not from one rule each: Hypothesis would leave out half of the rules in each history,
    and the verbs are worth most when they meet.
    """

    make_source: ClassVar[MakeSource]
    colour: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.runner: Runner = Runner(type(self).make_source, self.colour, dead_for=DEAD_FOR, dead_max=DEAD_MAX)
        self.can: Capabilities = self.runner.can
        self.model: Model = self.runner.model
        self.expected: Expected = self.runner.expected
        self.watching: bool = False
        self.handed: list[Claimed] = []
        self.requested: list[tuple[Sequence[str], int, int, str]] = []
        self.operated: list[NewMessage] = []

    @initialize(watching=st.booleans())
    def begin(self, watching: bool) -> None:
        """Half of the histories are looked at after each step. In the others, no look can repair an error unseen."""
        self.watching = watching

    @rule(act=st.deferred(lambda: st.sampled_from(strategies.WAYS).flatmap(lambda way: way)))
    def step(self, act: Act) -> None:
        getattr(self, act.verb)(**act.how)

    @invariant()
    def watch(self) -> None:
        if self.watching:
            self.runner.glance(TOPICS, KEYS)

    def teardown(self) -> None:
        try:
            if sys.exc_info()[0] is None:
                self.look_at_all(2, 0, 1_000)
                self.runner.drain(TOPICS)
                self.look_at_all(2, 0, 1_000)
        finally:
            self.runner.end()

    # putting and moving

    @way(5, batch=strategies.batches)
    def put(self, batch: list[NewMessage]) -> None:
        fitted = [self.fitted(new) for new in batch]
        self.runner.put(fitted)
        self.operated += [new for new in fitted if new.operation]

    @way(2, new=strategies.messages, pick=strategies.picks)
    def put_within(self, new: NewMessage, pick: int) -> None:
        """As a handler does under the key that its message has, or had."""
        if self.handed and (key := _from_end(self.handed, pick).key) is not None:
            sender = _from_end(self.handed, pick)
            self.put([replace(new, topic=sender.topic, key=key, within=sender.id)])

    @way(2, pick=strategies.picks, wait=st.sampled_from([None, None, -1, 0]))
    def put_again(self, pick: int, wait: int | None) -> None:
        """Perhaps after waiting until the operation is about to be forgotten."""
        if self.operated:
            new = _from_end(self.operated, pick)
            if wait is not None:
                self.runner.clock = self.model.operations[operation_of(new)][0] + OPERATION_MS + wait
            self.runner.put([new])

    @way(2, pointers=strategies.pointers)
    def cancel(self, pointers: list[Pointer]) -> None:
        if self.can.cancel:
            self.runner.cancel([self.ref(each) for each in pointers])

    @way(2, pointers=strategies.pointers, off=st.sampled_from([0, 0, 0, 1]), whole=st.booleans())
    def cancel_seen(self, pointers: list[Pointer], off: int, whole: bool) -> None:
        """Perhaps one of them is not as it was seen."""
        if self.can.cancel:
            found = {ref.id: self.runner.expected.messages.get(ref.id or "") for ref in map(self.ref, pointers)}
            known = {id: each for id, each in found.items() if id is not None}
            seen = [Seen(0) if each is None else Seen(each.due, each.sent.body if whole else None) for each in known.values()]
            seen[:1] = [Seen(max(0, each.due + off), each.body) for each in seen[:1]]
            if known:
                self.runner.cancel_seen([Ref(id=id) for id in known], seen)

    @way(2, pointers=strategies.pointers, delay=strategies.spans, at=strategies.instants, origin=strategies.origins)
    def reschedule(self, pointers: list[Pointer], delay: int, at: int | None, origin: Origin) -> None:
        if self.can.cancel and origin != "now":
            self.runner.reschedule([Move(self.ref(each), delay, origin=origin) for each in pointers])
        elif self.can.cancel:
            instant = None if at is None else self.runner.clock + at
            self.runner.reschedule([Move(self.ref(each), min(delay, self.can.max_delay), instant) for each in pointers])

    @way(
        3,
        topic=strategies.topics,
        picks=st.none() | strategies.some_picks,
        delay=strategies.spans,
        over=strategies.spans,
        limit=st.sampled_from([1, 1, 2, 3]),
    )
    def requeue(self, topic: str, picks: list[int] | None, delay: int, over: int, limit: int) -> None:
        if self.can.inspect:
            ids = None if picks is None else self._dead_and_others(picks)
            self.runner.requeue(self.where(topic, self.expected.dead()), ids, delay, over, limit)

    @way(1, topic=strategies.topics, picks=strategies.some_picks, limit=st.sampled_from([1, 2, 3]))
    def purge_named(self, topic: str, picks: list[int], limit: int) -> None:
        if self.can.inspect:
            self.runner.purge_named(self.where(topic, self.expected.dead()), self._dead_and_others(picks), limit)

    def _dead_and_others(self, picks: list[int]) -> list[str]:
        known = [*self.expected.living(), "no such id", *self.expected.dead()]
        return [_from_end(known, pick) for pick in picks]

    # delivering

    @way(4, topics=strategies.some_topics, limit=strategies.limits, lease=strategies.leases, named=st.booleans())
    def claim(self, topics: list[str], limit: int, lease: int, named: bool) -> Sequence[Claimed]:
        request = f"r{len(self.requested)}" if named and self.can.idempotent else None
        claimed = self.runner.claim(topics, limit, lease, request)
        self.handed += claimed
        if request:
            self.requested.append((topics, limit, lease, request))
        return claimed

    @way(3, held=st.sampled_from([True, True, False]), pick=strategies.picks, anew=st.booleans())
    def claim_again(self, held: bool, pick: int, anew: bool) -> None:
        """Once more with the same request, of which something may be held still: as after a lost answer, or of no topics."""
        live = [each for each in self.requested if any(map(self.model.held, self.model.requests[each[-1]]))] if held else []
        if self.requested:
            topics, limit, lease, request = _from_end(live or self.requested, pick)
            self.handed += self.runner.claim(topics if anew else [], limit if anew else 1, lease, request)

    @way(4, endings=strategies.endings)
    def settle(self, endings: list[Ending]) -> None:
        if self.handed:
            self.runner.settle([self.end(each) for each in endings])

    @way(2, endings=strategies.endings, lease=strategies.leases)
    def extend(self, endings: list[Ending], lease: int) -> None:
        if self.handed and self.can.extend:
            ends = [self.end(each) for each in endings]
            self.runner.extend([Hold(each.topic, each.id, each.token) for each in ends], lease)

    @way(
        6,
        patient=st.booleans(),
        topics=strategies.some_topics,
        verdicts=strategies.some_verdicts,
        delay=strategies.spans,
        error=strategies.errors,
    )
    def work(self, patient: bool, topics: list[str], verdicts: list[Verdict], delay: int, error: str | None) -> None:
        """Claim, if patient when something is due, and end at once; deliveries without a verdict stay held."""
        dues = [each.due for topic in topics for each in self.expected.of(topic, "scheduled")]
        if patient and dues:
            self.runner.clock = max(self.runner.clock, min(dues))
        ends = zip(self.claim(topics, len(verdicts) + 1, 1_000, named=True), verdicts, strict=False)
        self.runner.settle([End(each.topic, each.id, each.token, verdict, delay, error) for each, verdict in ends])

    # upkeep and time

    @way(2, budget=st.sampled_from([1, 2, 1_000]), spared=st.sampled_from([None, None, 0, 1, 1_000, 60_000, -1_000]))
    def tend(self, budget: int, spared: int | None) -> None:
        self.runner.tend(budget, None if spared is None else self.model.now - spared)

    @way(2, topic=strategies.topics, state=st.sampled_from(["dead", "ready", "ready", "scheduled"]), limit=strategies.pages)
    def purge(self, topic: str, state: State, limit: int) -> None:
        if self.can.inspect:
            self.runner.purge(self.where(topic, self.model.leaving.faded), state, limit)

    @way(1, topic=strategies.topics, paused=st.sampled_from([True, False, False]))
    def pause(self, topic: str, paused: bool) -> None:
        if self.can.pause:
            self.runner.pause(topic, paused)

    @way(3, by=st.sampled_from([1, 1, 10, 10, 1_000, 1_000, 60_000, 600_000, 100_000_000, -1, -1_000, -1_000, -300_000]))
    def turn_clock(self, by: int) -> None:
        self.runner.clock += by

    @way(2, by=st.sampled_from([1_000, 60_000, 600_000]))
    def set_clock_right(self, by: int) -> None:
        """After it was ahead, and the engine has seen that."""
        self.runner.clock += by
        self.runner.tend()
        self.runner.clock -= by

    @way(4, pick=st.integers(0, 5), off=st.sampled_from([-1, 0, 0, 1]))
    def turn_clock_to_a_moment(self, pick: int, off: int) -> None:
        """To one of the next instants at which something happens by time alone, or a millisecond off."""
        moments = [each for each in self.model.moments() if each >= self.model.now]
        if moments:
            self.runner.clock = moments[pick % len(moments)] + off

    @way(1, overlap=st.booleans())
    def reopen(self, overlap: bool) -> None:
        self.runner.reopen(overlap=overlap)

    @way(1, what=st.sampled_from(["put", "reschedule", "purge"]), new=strategies.messages, pointers=strategies.pointers)
    def refuse(self, what: str, new: NewMessage, pointers: list[Pointer]) -> None:
        """A refused call changes nothing."""
        self.runner.tend()  # so that engine and model agree on the time, from which the instant counts
        too_far = self.model.now + self.can.max_delay + 1
        if what == "put":
            beyond = NewMessage(new.topic, b"", delay=self.can.max_delay + 1)
            self.runner.put_refused(BadTime, [replace(self.fitted(new), operation=None), beyond])
        elif what == "reschedule" and self.can.cancel:
            refs = [self.ref(each) for each in pointers]
            self.runner.reschedule_refused(BadTime, [*(Move(each) for each in refs), Move(refs[0], at=too_far)])
        elif what == "purge" and self.can.inspect:
            self.runner.purge_refused(BadOption, new.topic, "leased")
            self.runner.purge_refused(BadOption, new.topic, "ready", self.expected.living())

    @way(1, page=strategies.pages, start=st.integers(-3, 1), width=st.sampled_from([1, 10, 1_000]))
    def look_at_all(self, page: int, start: int, width: int) -> None:
        begin = self.runner.clock + start * width
        self.runner.look(TOPICS, KEYS, Window(begin, begin + 4 * width, 4), page)

    # from random values to existing messages

    def fitted(self, new: NewMessage) -> NewMessage:
        """The message as this engine can take it, its instant counted from the clock."""
        return replace(
            new,
            at=None if new.at is None else self.runner.clock + new.at,
            delay=min(new.delay, self.can.max_delay),
            key=new.key if self.can.keys else None,
            level=new.level if self.can.priority else 1,
            operation=new.operation if self.can.idempotent else None,
            past=new.past if self.can.past else None,
        )

    def ref(self, pointer: Pointer) -> Ref:
        if pointer.kind == "key" and self.can.keys:
            return Ref(topic=pointer.topic, key=pointer.key)
        ids = self.expected.living() if pointer.kind == "live" else list(self.expected.messages)
        return Ref(_from_end(ids, pointer.pick) if ids and pointer.kind != "none" else "no such id")

    def where(self, topic: str, ids: Iterable[str]) -> str:
        """The topic of one of these messages, or the given one."""
        return next((self.expected.messages[id].topic for id in ids), topic)

    def end(self, ending: Ending) -> End:
        held = [each for each in self.handed if self.model.held(each)] if ending.held else []
        each = _from_end(held or self.handed, ending.pick)
        end = End(each.topic, each.id, each.token, ending.verdict, ending.delay, ending.error)
        if ending.aside and ending.verdict == "release":
            end = replace(end, aside=True)
        if ending.began is not None:
            end = replace(end, began=self.model.now - ending.began)
        if ending.trace is not None:
            end = replace(end, trace=ending.trace)
        if ending.attempts is not None and ending.verdict == "retry":
            end = replace(end, attempts=ending.attempts)
        if ending.made_up == "token":
            return replace(end, token=each.token + "0")
        if ending.made_up == "topic":
            return replace(end, topic=next(name for name in TOPICS if name != each.topic))
        return replace(end, id="no such id") if ending.made_up else end


def _from_end(of: Sequence[T], pick: int) -> T:
    return of[~pick % len(of)]


def machine_for(make_source: MakeSource, colour: str) -> type[EngineMachine]:
    """The state machine of one engine in one colour, for Hypothesis to run."""
    return type("EngineMachine", (EngineMachine,), {"make_source": staticmethod(make_source), "colour": colour})


def check_engine(
    make_source: MakeSource, *, colour: str, examples: int, steps: int, seed: int = 0, budget: float = math.inf
) -> None:
    """Try this many histories, the same for the same seed, or as many as are begun within a budget: seconds of a core. Raises
    with the shortest that fails.
    """
    began = time.process_time()
    for first in range(0, examples, AT_ONCE):
        if time.process_time() - began < budget:
            _check(make_source, colour, min(AT_ONCE, examples - first), steps, seed * SEEDS + first)


def _check(make_source: MakeSource, colour: str, examples: int, steps: int, seed: int) -> None:
    how = settings(
        max_examples=examples,
        stateful_step_count=steps,
        database=None,
        deadline=None,
        print_blob=False,
        phases=[Phase.generate, Phase.shrink],
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(hypothesis.seed(seed)(machine_for(make_source, colour)), settings=how)


def from_url(url: str) -> MakeSource:
    """Sources at one URL, each with a new namespace. If the engine takes a clock, it stands still."""

    def make(*, dead_for: int, dead_max: int) -> Source:
        asked = {"url": url, "namespace": f"check-{secrets.token_hex(8)}", "dead_for": dead_for, "dead_max": dead_max}
        try:
            return source(Settings(**asked, clock=ManualClock()))  # type: ignore[arg-type]
        except ConfigError:
            return source(Settings(**asked))  # type: ignore[arg-type]

    return make


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.model.hypothesis_rules", description="Check an engine against the model."
    )
    parser.add_argument("url")
    parser.add_argument("--examples", type=_count, default=200, help="histories a seed and colour (default: 200)")
    parser.add_argument("--steps", type=_count, default=100, help="steps of the longest history (default: 100)")
    parser.add_argument("--seeds", type=_count, default=1, help="how many seeds to try (default: 1)")
    parser.add_argument("--first", type=int, help="the first seed (default: any)")
    parser.add_argument("--colour", choices=["async", "sync"], help="one colour only (default: those that the engine has)")
    asked = parser.parse_args(arguments)
    make = from_url(asked.url)
    try:
        colours = [asked.colour] if asked.colour else sorted(make(dead_for=DEAD_FOR, dead_max=DEAD_MAX).capabilities.colours)
    except BideError as error:
        parser.error(str(error))
    first = secrets.randbelow(10**9) if asked.first is None else asked.first
    for seed in range(first, first + asked.seeds):
        for colour in colours:
            begin = time.perf_counter()
            try:
                check_engine(make, colour=colour, examples=asked.examples, steps=asked.steps, seed=seed)
            except Exception as error:  # an engine may fail in any way
                traceback.print_exception(error, file=sys.stdout)
                print(f"seed {seed} {colour}: FAILED")
                return 1
            print(f"seed {seed} {colour}: {asked.examples} histories held, {time.perf_counter() - begin:.1f} s", flush=True)
    return 0


def _count(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} is none at all")
    return count


if __name__ == "__main__":
    sys.exit(main())
