"""A run of a move at whose calls of the engines something happens, by a plan; and one that stands still now and then, while
others go on.

Only one of them does something at a time, so a history is decided by its seed.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from random import Random
from threading import Semaphore, Thread
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import json
from msgspec.structs import replace

from bide.adopt.adoption import Adoption
from bide.adopt.queue.messages import TOO_FAR, Able
from bide.adopt.queue.move import QueueSource
from bide.engines.base import NewMessage
from bide.errors import BideError, OutcomeUnknown, QueueFull, Unavailable
from bide.types import Sent
from tests.move.meddling import Killed

if TYPE_CHECKING:
    from tests.move.histories import History

Plan: TypeAlias = dict[tuple[str, int], str]  # by side, and which of its calls: what happens there

VERBS = ("put", "reschedule", "get", "cancel", "scan", "purge", "stats", "claim")
EVENTS = {
    "kill": ("kill", "kill after"),
    "error": ("unavailable", "unknown", "unknown, done", "partly"),
    "user": ("user", "user after"),
    "two": ("second", "second, killed"),
    "late": ("late",),
    "beside": ("beside",),
}
BATCH = 5


class Run:
    def __init__(self, history: "History", plan: Plan, title: str) -> None:
        self.history, self.plan, self.title = history, plan, title
        self.killed = False
        self.pause: Callable[[], None] = lambda: None

    def go(self) -> bool:
        """Whether it came to its end."""
        history = self.history
        old: Any = Watched(self, "old")
        source = QueueSource(old, "old", re.compile(".*"), Able(), "new")
        adoption = Adoption(source, _Destination(self), batch=BATCH)  # type: ignore[arg-type]
        result = "ended"
        try:
            try:
                adoption.run(lambda _: None, lambda: False)
            finally:
                if not self.killed:
                    source.close()
        except Killed:
            result = "killed"
        except BideError as error:
            result = f"{type(error).__name__}: {error}"
        history.log.append(f"{self.title}: {result}; {adoption.adopted} moved, {adoption.counts}")
        if TOO_FAR in adoption.refused and history.together > 1:
            history.faults.append(f"{self.title} takes what is on its way for something that is due in many years")
        return result == "ended"


class Beside:
    """A run that goes on only when it is told to, and then until it stands still again, or has ended."""

    def __init__(self, run: Run) -> None:
        self.ended = False
        self._run, self._may_go, self._stands = run, Semaphore(0), Semaphore(0)
        run.pause = self._pause
        self._thread = Thread(target=self._go, daemon=True)
        self._thread.start()

    def go_on(self) -> None:
        self._may_go.release()
        self._stands.acquire()
        if self.ended:
            self._thread.join()

    def _go(self) -> None:
        self._may_go.acquire()
        try:
            self._run.go()
        except BaseException as error:
            self._run.history.faults.append(f"{self._run.title}: {error!r}")
            raise
        finally:
            self.ended = True
            self._stands.release()

    def _pause(self) -> None:
        self._stands.release()
        self._may_go.acquire()


class Hands:
    """In place of a pool of threads: does what it is given now, or when somebody waits for it."""

    def __init__(self, chance: Random) -> None:
        self._chance = chance
        self._given: list[_Given] = []

    def __enter__(self) -> "Hands":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        for each in self._given if kind is not Killed else ():
            each.does()

    def submit(self, does: Callable[..., Any], *asked: Any) -> "_Given":
        given = _Given(lambda: does(*asked))
        self._given.append(given)
        if self._chance.random() < 0.5:
            given.does()
        return given


class _Given:
    def __init__(self, does: Callable[[], Any]) -> None:
        self._does, self._done = does, False
        self._found: Any = None
        self._error: BaseException | None = None

    def does(self) -> None:
        if not self._done:
            self._done = True
            try:
                self._found = self._does()
            except BaseException as error:
                self._error = error

    def result(self) -> Any:
        self.does()
        if self._error is not None:
            raise self._error
        return self._found


class Watched:
    """An engine at whose calls the plan's events happen."""

    def __init__(self, run: Run, side: str) -> None:
        self.engine: Any = run.history.engines[side]
        self.capabilities: Any = replace(self.engine.capabilities, together=run.history.together)
        self._run, self._history, self._side = run, run.history, side
        self._calls = 0
        self._ends = 0  # dead letters, or what no engine ends together, as it has noted

    def __getattr__(self, name: str) -> Any:
        real = getattr(self.engine, name)
        return self._watched(name, real) if name in VERBS else real

    def _watched(self, verb: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*asked: Any, **options: Any) -> Any:
            history = self._history
            if self._run.killed:
                raise Killed
            self._calls += 1
            self._note_ends(verb, asked)
            history.act_late()
            history.others_go_on()
            event = self._run.plan.get((self._side, self._calls))
            if event is None:
                return real(*asked, **options)
            history.log.append(f"  {self._run.title}: {self._side} call {self._calls}, {verb}: {event}")
            return self._happens(event, verb, asked, options, real)

        return call

    def _note_ends(self, verb: str, asked: Sequence[Any]) -> None:
        if verb == "put" and self._side == "old":
            key, body = asked[0][0].key or "", asked[0][0].body
            if not key.startswith("changed/"):  # that leaves what it has noted to end
                self._ends = len(json.decode(body)) if key.startswith("ends/") else 0
        elif verb in ("scan", "reschedule"):
            self._ends = 0

    def _nobody_can_tell(self, event: str) -> bool:
        """Who has ended a dead letter: a run that stood still before it purged it, or was killed, or somebody else. Of several
        shards one may have ended its part."""
        if self._history.together == 1:
            return self._ends > 0 and event not in EVENTS["user"]
        return event == "pause" if self._ends > 1 else self._ends == 1 and event not in EVENTS["user"]

    def _may_be_late(self, verb: str, asked: Sequence[Any], options: Mapping[str, Any]) -> bool:
        """What ends messages without a condition would end what somebody has changed since."""
        return verb in ("put", "reschedule") or "seen" in options

    def _happens(
        self, event: str, verb: str, asked: Sequence[Any], options: Mapping[str, Any], real: Callable[..., Any]
    ) -> Any:
        history, run = self._history, self._run

        def do() -> Any:
            return real(*asked, **options)

        # a dead letter that changes in the milliseconds between the last look at it and its end may come to life again
        looked = self._side == "old" and (verb, event) in (("get", "user after"), ("purge", "user"))
        if self._ends and history.together == 1 and (looked or (verb, event) == ("cancel", "user")):
            return do()  # and a pending one would be ended as it is then
        history.unsure |= self._nobody_can_tell(event)
        if event in ("kill", "kill after", "late"):
            if event == "kill after":
                do()
            if event == "late" and self._may_be_late(verb, asked, options):
                history.late.append(do)
            run.killed = True
            raise Killed
        if event == "unavailable":
            raise QueueFull("full") if verb == "put" and self._side == "new" else Unavailable("away")
        if event in ("unknown", "unknown, done", "partly"):
            if event == "partly" and verb == "put" and self._side == "new":
                done = [history.chance.random() < 0.5 for _ in asked[0]]
                answers = iter(real([new for new, each in zip(asked[0], done, strict=True) if each]) if any(done) else ())
                raise OutcomeUnknown("partly", answers=[next(answers) if each else None for each in done])
            if event == "unknown, done":
                do()
            raise OutcomeUnknown("unknown")
        if event in ("second", "second, killed"):
            history.second(killed=event == "second, killed")
        if event == "beside":
            history.begin_beside()
        if event == "pause":
            run.pause()
        if event == "user":
            history.user(dead=not looked)
        found = do()
        if event == "user after":
            history.user(dead=not looked)
        return found


class _Destination:
    """The new queue, as an adoption uses it, with its engine watched."""

    def __init__(self, run: Run) -> None:
        self._engine: Any = Watched(run, "new")
        self.capabilities = run.history.new.capabilities
        self.setup = run.history.new.session.setup
        self.session = self

    def engine(self) -> Any:
        return self._engine

    def put_many(self, messages: Sequence[NewMessage]) -> Sequence[Sent]:
        found: Sequence[Sent] = self._engine.put(messages) if messages else ()
        return found
