"""Long histories of two clients, judged by the model: problems that appear only after thousands of steps.

`python -m tests.model.long_history memory:// --seed 7 --shrink` plays one. Its steps come in moods, so that messages
pile up, move, are worked on, fail and are taken out.

Each step draws from a generator of its own, so a step that is left out changes no other one's draw, and a history that
fails can be made shorter.
"""

import argparse
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from random import Random
from typing import Any

from msgspec.structs import replace

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
    Verdict,
    Window,
)
from bide.errors import BadOption, BadTime
from bide.types import State
from tests.model.draw import DAY, KEYS, SPANS, TOPICS, Draw
from tests.model.expected import Expected
from tests.model.hypothesis_rules import from_url
from tests.model.model import Model, operation_of
from tests.model.runner import MakeSource, Runner

JUMPS = (1, 1, 1, 5, 64, 1_000, 2_048, 30_000, 65_536, 700_000, 3_600_000, DAY, 8 * DAY, 30 * DAY, -1, -1_000, -300_000)
CROWD = 250  # living messages: with more, the history turns to taking them out
MOOD = 120  # steps
AGES = 2_000 * DAY  # after which an engine remembers nothing of ended messages
WATCH = 100  # steps between two looks at the store from outside
TOLD = 12  # of the last calls, when one was wrong
TOLD_MOST = 1_000  # characters of each
MOST_REPLAYS = 150  # of shorter histories, to find the shortest one
WAYS_TO_END: Sequence[Sequence[Verdict]] = (["done"], ["done"], ["done", "retry", "release", "dead"], ["retry"])

ORIGINS: Sequence[Origin] = ("due", "since")

Left = Callable[[Runner], None]
"""Looks at the store, at the end or on the way there, and raises if it finds anything wrong."""

MOODS: Mapping[str, Mapping[str, int]] = {
    "fill": {"put": 8, "burst": 3, "put_again": 2, "reschedule": 3, "cancel": 1, "claim": 1, "work": 1, "jump": 1, "moment": 1},
    "move": {"put": 2, "burst": 1, "reschedule": 10, "cancel": 3, "cancel_seen": 2, "work": 1, "jump": 1, "moment": 2},
    "work": {"put": 2, "burst": 1, "claim": 3, "claim_again": 2, "settle": 4, "extend": 2, "work": 10, "moment": 6, "jump": 2},
    "break": {"put": 3, "claim": 6, "settle": 4, "tend": 4, "requeue": 5, "purge": 2, "jump": 5, "moment": 4, "work": 4},
    "take out": {"work": 12, "claim": 1, "settle": 3, "jump": 4, "moment": 3, "cancel": 2, "purge": 1, "tend": 1, "put": 1},
}
"""How often each way to go on is taken while the mood lasts."""
ALWAYS = dict.fromkeys(
    [
        "put",
        "work",
        "cancel",
        "cancel_seen",
        "reschedule",
        "extend",
        "tend",
        "purge",
        "purge_named",
        "requeue",
        "pause",
        "look",
        "reopen",
        "refuse",
    ],
    1,
) | {"glance": 2}


class LongHistory:
    """One history. Raises Divergence at the step at which the engine breaks a promise."""

    def __init__(self, make_source: MakeSource, seed: int, colours: Sequence[str]) -> None:
        draw = Random(f"{seed} begin")
        self.seed: int = seed
        self.runner: Runner = Runner(
            make_source, *colours, dead_for=draw.choice([3_600_000, 3 * DAY, 30 * DAY]), dead_max=draw.choice([3, 20, 1_000])
        )
        self.model: Model = self.runner.model
        self.expected: Expected = self.runner.expected
        self.can: Capabilities = self.runner.can
        self.clients: int = len(colours)
        self.handed: deque[Claimed] = deque(maxlen=300)
        self.requested: deque[tuple[Sequence[str], int, int, str]] = deque(maxlen=60)
        self.operated: deque[NewMessage] = deque(maxlen=30)
        self.asked: Counter[str] = Counter()
        self.told: deque[str] = deque(maxlen=TOLD)
        self.requests: int = 0

    def run(self, steps: Iterable[int], left: Left | None = None, watch: Left | None = None) -> None:
        """Take these steps, then take out all messages and look at what is left. `watch` looks now and then on the way."""
        for count, step in enumerate(steps, 1):
            try:
                self._step(step)
                if watch and count % WATCH == 0:
                    watch(self.runner)
            except Exception as error:
                self._explain(error, f"step {step}")
                raise
        try:
            self.runner.look(TOPICS, KEYS, Window(self.runner.clock - DAY, self.runner.clock + DAY, 4), 7)
            self._take_out_slowly()
            if watch:
                watch(self.runner)
            self.runner.drain(TOPICS)
            self.runner.clock = self.model.now + AGES
            self.runner.look(TOPICS, KEYS, Window(self.runner.clock, self.runner.clock + 4, 4))
            if left:
                left(self.runner)
        except Exception as error:
            self._explain(error, "when all was taken out")
            raise

    def _explain(self, error: Exception, when: str) -> None:
        error.add_note(f"Seed {self.seed}, {when}, {len(self.expected.messages)} messages so far. The last calls:")
        error.add_note("\n".join(self.told))

    def _step(self, step: int) -> None:
        draw = Draw(f"{self.seed} {step}", self.runner)
        mood = Random(f"{self.seed} mood {step // MOOD}").choice(sorted(MOODS))
        ways = Counter(MOODS["take out" if len(self.expected.alive) > CROWD else mood]) + Counter(ALWAYS)
        [way] = draw.choices(list(ways), list(ways.values()))
        self.runner.use(draw.randrange(self.clients))
        self.told.append(f"{step} at {self.runner.clock}: {way}")
        getattr(self, way)(draw)

    def _do(self, verb: str, *asked: Any) -> Any:
        self.asked[verb] += 1
        self.told.append(f"    {verb}{asked}"[:TOLD_MOST])
        return getattr(self.runner, verb)(*asked)

    def _take_out_slowly(self) -> None:
        """Claim messages at their due times, so that no instant is skipped."""
        for topic in TOPICS if self.can.pause else ():
            self.runner.pause(topic, False)
        for _ in range(60):
            ahead = [each for each in self.model.moments() if each > self.model.now]
            if not ahead:
                return
            self.runner.clock = ahead[0]
            self.told.append(f"taking out at {self.runner.clock}")
            got = self._do("claim", TOPICS, 50, 1_000, None)
            self.runner.settle([End(each.topic, each.id, each.token, "done") for each in got])

    # putting and moving

    def put(self, draw: Draw) -> None:
        batch = [draw.message() for _ in range(draw.choice([1, 1, 1, 2, 3, 5]))]
        self._do("put", batch)
        self.operated += [new for new in batch if new.operation]

    def burst(self, draw: Draw) -> None:
        """Many messages of one topic within a millisecond, a minute or a month: more than one bucket of an engine holds."""
        topic, level = draw.choice(TOPICS), draw.level()
        at = draw.instant()
        spread = draw.choice([0, 0, 1, 3, 100, 60_000, 30 * DAY])
        plain = NewMessage(topic, b"", level=level, max_attempts=draw.choice([1, 3]))
        some = range(draw.choice([9, 20, 40]))
        self._do("put", [replace(plain, body=b"%d" % i, at=at + draw.randint(0, spread)) for i in some])

    def put_again(self, draw: Draw) -> None:
        if self.operated:
            new = draw.choice(self.operated)
            wait = draw.choice([None, None, -1, 0])
            if wait is not None:
                born = self.model.operations[operation_of(new)][0]
                self.runner.clock = max(self.runner.clock, born + OPERATION_MS + wait)
            self._do("put", [new])

    def cancel(self, draw: Draw) -> None:
        if self.can.cancel:
            self._do("cancel", draw.refs(draw.choice([1, 1, 3, 30])))

    def cancel_seen(self, draw: Draw) -> None:
        """Mostly as they are now."""
        found = dict.fromkeys(each.id for each in draw.refs(draw.choice([1, 1, 3, 30])) if each.id is not None)
        if self.can.cancel and found:
            known = [self.expected.messages.get(id) for id in found]
            whole, off = draw.random() < 0.5, draw.choice([0, 0, 0, 1])
            seen = [Seen(0) if each is None else Seen(each.due, each.sent.body if whole else None) for each in known]
            seen[-1] = Seen(seen[-1].due + off, seen[-1].body)
            self._do("cancel_seen", [Ref(id) for id in found], seen)

    def reschedule(self, draw: Draw) -> None:
        if self.can.cancel:
            refs = draw.refs(draw.choice([1, 1, 1, 4, 30]))
            far = draw.random() < 0.3
            at = draw.instant() if draw.random() < 0.5 else None
            moves = [Move(each, draw.choice(SPANS), draw.instant() if far else at) for each in refs]
            if draw.random() < 0.3:
                origin = draw.choice(ORIGINS)
                moves = [Move(each.ref, each.delay, origin=origin) for each in moves]
            if draw.random() < 0.2:
                moves = self._if_as_seen(draw, moves)
            self._do("reschedule", moves)

    def _if_as_seen(self, draw: Draw, moves: Sequence[Move]) -> list[Move]:
        """Those that are named by their ids, each once, mostly as they are now."""
        named = {each.ref.id: each for each in moves if each.ref.id is not None}
        known = {id: self.expected.messages[id].due for id in named if id in self.expected.messages}
        return [replace(each, seen=known.get(id, 0) + draw.choice([0, 0, 0, 1])) for id, each in named.items()]

    def requeue(self, draw: Draw) -> None:
        dead = self.expected.dead()
        if self.can.inspect and (dead or draw.random() < 0.1):
            topic = self.expected.messages[draw.choice(dead)].topic if dead else draw.choice(TOPICS)
            ids = self._dead_and_others(draw) if draw.random() < 0.5 else None
            self._do("requeue", topic, ids, draw.choice(SPANS), draw.choice(SPANS), draw.choice([1, 2, 5, 1_000]))

    def _dead_and_others(self, draw: Draw) -> list[str]:
        return draw.choices([*self.expected.living()[-20:], "no such id", *self.expected.dead()], k=draw.randint(1, 4))

    # delivering

    def claim(self, draw: Draw) -> Sequence[Claimed]:
        self.requests += 1
        request = f"r{self.requests}" if self.can.idempotent and draw.random() < 0.7 else None
        asked = (draw.some_topics(), draw.choice([1, 2, 5, 30]), draw.choice([1, 50, 1_000, 60_000, DAY]), request)
        claimed: Sequence[Claimed] = self._do("claim", *asked)
        self.handed += claimed
        if request:
            self.requested.append((*asked[:3], request))
        return claimed

    def claim_again(self, draw: Draw) -> None:
        """Once more with the same request, as after a lost answer, or of no topics."""
        live = [each for each in self.requested if any(map(self.model.held, self.model.requests[each[-1]]))]
        if self.requested:
            topics, limit, lease, request = draw.choice(live or self.requested)
            anew = draw.random() < 0.5
            self.handed += self._do("claim", topics if anew else [], limit if anew else 1, lease, request)

    def settle(self, draw: Draw) -> None:
        if self.handed:
            self._do("settle", [draw.end(self.handed) for _ in range(draw.choice([1, 1, 3, 12]))])

    def extend(self, draw: Draw) -> None:
        if self.handed and self.can.extend:
            ends = [draw.end(self.handed) for _ in range(draw.choice([1, 1, 4]))]
            self._do("extend", [Hold(each.topic, each.id, each.token) for each in ends], draw.choice([1, 50, 1_000, DAY]))

    def work(self, draw: Draw) -> None:
        """Claim, often when something is due, and end most of it at once."""
        topics = draw.some_topics()
        dues = [each.due for topic in topics for each in self.expected.of(topic, "scheduled")]
        if dues and draw.random() < 0.5:
            self.runner.clock = max(self.runner.clock, min(dues))
        got = self.claim(draw)
        verdicts = draw.choice(WAYS_TO_END)
        kept = draw.choice([0, 0, 0, 1, 3])
        ends = [
            End(each.topic, each.id, each.token, draw.choice(verdicts), draw.choice(SPANS), "it broke")
            for each in got[: max(0, len(got) - kept)]
        ]
        if ends:
            self._do("settle", ends)

    # upkeep and time

    def tend(self, draw: Draw) -> None:
        spared = draw.choice([None, None, None, 0, 1, 1_000])
        self._do("tend", draw.choice([1, 2, 3, 7, 1_000]), None if spared is None else self.model.now - spared)

    def purge(self, draw: Draw) -> None:
        if self.can.inspect:
            states: list[State] = ["dead", "ready", "scheduled"]
            self._do("purge", draw.choice(TOPICS[1:]), draw.choice(states), draw.choice([1, 3, 1_000]))

    def purge_named(self, draw: Draw) -> None:
        dead = self.expected.dead()
        if self.can.inspect and dead:
            topic = self.expected.messages[draw.choice(dead)].topic
            self._do("purge_named", topic, self._dead_and_others(draw), draw.choice([1, 2, 1_000]))

    def pause(self, draw: Draw) -> None:
        if self.can.pause:
            self._do("pause", draw.choice(TOPICS), draw.random() < 0.3)

    def jump(self, draw: Draw) -> None:
        self.runner.clock = max(self.runner.clock, self.model.now) + draw.choice(JUMPS)

    def moment(self, draw: Draw) -> None:
        """To one of the next instants at which something happens by time alone, or a millisecond off."""
        ahead = [each for each in self.model.moments() if each >= self.model.now]
        if ahead:
            self.runner.clock = draw.choice(ahead[: draw.choice([1, 6])]) + draw.choice([-1, 0, 0, 1])

    def reopen(self, draw: Draw) -> None:
        if draw.random() < 0.3:
            self.runner.reopen(overlap=draw.random() < 0.5)

    def refuse(self, draw: Draw) -> None:
        """A refused call changes nothing."""
        self.runner.tend()  # so that engine and model agree on the time, from which the instant counts
        too_far = self.can.max_delay + 1
        what = draw.choice(["put", "reschedule", "purge"])
        if what == "put":
            batch = [replace(draw.message(), operation=None), NewMessage(draw.choice(TOPICS), b"", delay=too_far)]
            self._do("put_refused", BadTime, batch)
        elif what == "reschedule" and self.can.cancel:
            refs = draw.refs(3)
            self._do("reschedule_refused", BadTime, [*map(Move, refs), Move(refs[0], at=self.model.now + too_far)])
        elif self.can.inspect:
            self._do("purge_refused", BadOption, draw.choice(TOPICS), "leased")

    def look(self, draw: Draw) -> None:
        begin = self.runner.clock - draw.choice([0, 1, 1_000, 40 * DAY])
        width = draw.choice([1, 50, 100_000, 30 * DAY])
        self._do("look", [draw.choice(TOPICS)], KEYS, Window(begin, begin + 4 * width, 4), draw.choice([1, 3, 10, 1_000]))

    def glance(self, draw: Draw) -> None:
        self._do("glance", TOPICS, KEYS)


def play(
    make_source: MakeSource,
    seed: int,
    steps: Iterable[int],
    *,
    colours: Sequence[str],
    left: Left | None = None,
    watch: Left | None = None,
) -> LongHistory:
    history = LongHistory(make_source, seed, colours)
    try:
        history.run(steps, left, watch)
    finally:
        history.runner.end()
    return history


def check_long_history(
    make_source: MakeSource,
    *,
    seed: int,
    steps: int = 2_500,
    colours: Sequence[str] = ("async", "sync"),
    left: Left | None = None,
    watch: Left | None = None,
    shrink: bool = False,
) -> LongHistory:
    """Play the history of a seed, the same one each time. Raises with the step that failed.

    `left` looks at the store at the end, and `watch` now and then on the way there.

    With `shrink` a history that fails is made shorter first, which takes a while.
    """

    def fails(some: Sequence[int]) -> bool:
        try:
            play(make_source, seed, some, colours=colours, left=left, watch=watch)
        except Exception:
            return True
        return False

    try:
        return play(make_source, seed, range(steps), colours=colours, left=left, watch=watch)
    except Exception:
        if not shrink:
            raise
    return play(make_source, seed, _shortest(list(range(steps)), fails), colours=colours, left=left, watch=watch)


def _shortest(steps: list[int], fails: Callable[[Sequence[int]], bool]) -> list[int]:
    """Leave out what is not needed, large pieces first."""
    size, replays = len(steps) // 2, 0
    while size and replays < MOST_REPLAYS:
        end = len(steps)
        while end > 0 and replays < MOST_REPLAYS:
            rest = steps[: max(0, end - size)] + steps[end:]
            replays += 1
            if fails(rest):
                steps = rest
            end -= size
        size //= 2
    return steps


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.model.long_history", description="Check an engine against the model for long."
    )
    parser.add_argument("url")
    parser.add_argument("--seed", type=int, default=0, help="the first seed (default: 0)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds to try (default: 1)")
    parser.add_argument("--steps", type=int, default=2_500, help="of each history (default: 2,500)")
    parser.add_argument("--shrink", action="store_true", help="look for a shorter history that fails as well")
    asked = parser.parse_args(arguments)
    for seed in range(asked.seed, asked.seed + asked.seeds):
        history = check_long_history(from_url(asked.url), seed=seed, steps=asked.steps, shrink=asked.shrink)
        print(f"seed {seed}: {asked.steps} steps held, {dict(history.asked)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
