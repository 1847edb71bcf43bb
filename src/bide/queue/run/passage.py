"""One message on its way through the gates of its task, step by step: what it asks for, and what comes of the answers."""

from collections.abc import Mapping
from typing import Any

from bide.engines.base import Claimed
from bide.engines.gates import Entered, Entry, Held, Spend, Spent
from bide.queue.tasks.limits import GateStep, Limits
from bide.queue.tasks.outcome import RELEASED, Outcome

ASIDE = 30_000  # ms: should nobody call a message that waits for its turn, it looks for itself after so long,
LONG_ASIDE = 600_000  # and again when it has waited as long as it had by then, up to so long


class Passage:
    def __init__(self, limits: Limits, claimed: Claimed, arguments: Mapping[str, Any]) -> None:
        """Raises Unread if the message's arguments can't be put into the name of a gate."""
        self.limits: Limits = limits
        self.steps: list[GateStep] = limits.steps(arguments)  # still to come
        self.held: list[Held] = []
        self.refused: Outcome | None = None
        self.again: float = 0.0  # seconds until its topic may go on; 0: when there is a place
        self._id = claimed.id
        self._since = claimed.since
        self._holder = f"{claimed.id} {claimed.token}"  # each delivery for itself: an earlier one may still run
        self._lease = 0
        self._was_here = claimed.attempt > 1 or claimed.began is not None

    @property
    def step(self) -> GateStep | None:
        """What comes next, until it was taken."""
        return self.steps[0] if self.steps and self.refused is None else None

    @property
    def _lock_wait(self) -> int | None:
        """How long it waits for its lock, in ms.

        What was here before may meet itself: its worker died, and holds the lock until its lease ends. That is no conflict.
        """
        limits = self.limits
        if limits.on_conflict == "error" and self._was_here:
            return self._lease
        return limits.lock_wait if limits.on_conflict == "wait" else None

    def entry(self, step: GateStep, lease_ms: int) -> Entry:
        self._lease = lease_ms
        waits = step.waits and (step.lock is None or self._lock_wait is not None)
        return Entry(step.gate, self._holder, lease_ms, step.places, self._id if waits else None)

    def spend(self, step: GateStep) -> Spend:
        return Spend(step.gate, step.places, step.window, holder=self._id if step.waits else None)

    def entered(self, answer: Entered, now: int) -> None:
        """The engine has answered an entry, when its time was about `now`."""
        step = self.steps.pop(0)
        if answer.token is not None:
            self.held.append(Held(step.gate, self._holder, answer.token))
        elif step.waits:
            self.refused = self._waits(step, 0 if answer.since is None else now - answer.since)
        else:
            self.refused = RELEASED

    def spent(self, answer: Spent) -> None:
        step = self.steps.pop(0)
        if step.waits:
            if (wait := answer.at[0] - answer.now) > 0:  # it looks before, since those before it may be gone by then
                self.refused = Outcome("release", min(wait, max(answer.now - self._since, ASIDE)), aside=True)
        elif not answer.at:
            self.refused, self.again = RELEASED, (answer.next_at - answer.now) / 1000

    def _waits(self, step: GateStep, waited: int) -> Outcome:
        """What becomes of a message whose gate is full."""
        limits = self.limits
        aside = min(max(waited, ASIDE), LONG_ASIDE)
        if step.lock is None:
            return Outcome("release", aside, aside=True)
        if limits.on_conflict == "defer":
            return Outcome("release", limits.lock_delay, aside=True)
        longest = self._lock_wait
        if longest is None:
            return Outcome("dead", 0, f"Locked: the lock {step.lock} is held")
        if waited >= longest:
            self.held.append(Held(step.gate, self._id, None))  # its place in the line
            return Outcome("dead", 0, f"Locked: the lock {step.lock} was held for all of {longest / 1000:g} s")
        return Outcome("release", min(longest - waited, aside), aside=True)
