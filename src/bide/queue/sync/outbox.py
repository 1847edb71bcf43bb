# Generated from ../aio/outbox.py by tools/unasync.py; change that file instead.
"""The outbox: sends that are committed with the caller's own work, and then handed to the queue's engine, at least once."""

import time
from collections.abc import Sequence

from msgspec.structs import replace

from bide.engines.base import MAX_BATCH, SWEEP, Claim, Claimed, End, Hold, NewMessage, Stored
from bide.engines.guard.hooks import BadHook, Hooks
from bide.engines.sync import Engine
from bide.errors import (
    BadBody,
    BadMessage,
    BideError,
    ConfirmTimeout,
    OutcomeUnknown,
    QueueFull,
    ResultPending,
    ResultUnknown,
    Unavailable,
    Unsupported,
)
from bide.logs import Log
from bide.queue import outbox
from bide.queue.away import MOST, Away, Kept, end_of
from bide.queue.batching import CLOSING
from bide.queue.results import expected
from bide.queue.setup import Setup
from bide.queue.sync.depending import Dependents
from bide.queue.sync.keeping import Keeping
from bide.queue.sync.leader import LEAD, POLL, Leader, Leaders
from bide.queue.sync.turns import LEASE, Turns
from bide.queue.sync.waiting import Waiting
from bide.types import Sent
from bide.wakeable import Signal

AT_ONCE = 100  # messages; MAX_BATCH behind many that are held back, if these have at most
LIGHT = 4_096  # bytes each
HELD = 5_000  # ms for which what is to be cancelled or moved is not delivered
SOON, LATER = 500, 10_000  # ms until the next try while the queue's engine is away
LOOKS = 1_500  # ms in which what is behind many that are held back is found
OFTEN = 30  # tries of what this release can't hand on; each next one is LATER by as much again
SURE = 300_000  # ms for which what is not confirmed is tried again: a try after ten minutes would send it a second time
LONGEST = 120_000  # ms between two of these tries

_log = Log("bide.outbox")


class Outbox:
    """`store`: the engine of the caller's database. Any number of programs may hand its messages on."""

    def __init__(self, store: Engine, target: Engine, keeping: Keeping, setup: Setup, shown: str) -> None:
        """`keeping`: the results that are kept by the queue's engine. `shown`: the store, as it may be shown."""
        self._setup = setup
        self._hooks = Hooks(setup.hooks, shown)
        self.store: Engine = store
        self._target = target
        self._keeping = keeping
        self._named = Keeping(store, Dependents(store))  # the ids that messages have since they were handed on
        self._names = False  # whether any that was handed on here is asked for
        self._pause = SOON
        self._patience = 0.0  # seconds until something may be due that nobody is told of
        self._closed = False
        self._stops = False
        self._end = Signal()
        self.waits: bool = False  # for what is committed next: nothing is on its way
        self._upkeep_at = 0.0  # also while each claim finds something: what a dead relay had taken may be in its way
        self._at_once = AT_ONCE
        self._put_off_until = 0.0  # by time.monotonic(): some that this relay has put off
        self.waiting: Waiting = Waiting(store, target, self._bring)
        self._away = Away(target.part_of)
        self._turns = Turns(self.waiting, target)
        self.leaders: Leaders = Leaders(store)
        self._for_others = False  # whether there was something that this release can't hand on
        self._gave_way = 0.0  # by time.monotonic(): when it last left that to others

    def put(self, messages: Sequence[NewMessage], *, connection: object) -> list[Sent]:
        self.store.open()
        keeps = self._setup.tasks.keeps
        once = self._target.capabilities.idempotent
        with self._hooks.call("put", messages) as call:  # of what is sent: the store's own hooks would see what wraps it
            kept = self.store.put(
                [outbox.kept(new, keeps.get(new.topic), once=once) for new in messages], connection=connection
            )
            call.answer = sent = outbox.answers(messages, kept)
        self._named.expect(expected(sent, keeps), connection)
        return sent

    def find(self, id: str, timeout: float | None) -> str:
        """The id that a message has since it was handed on. Raises NoResult."""
        self.store.open()
        try:
            return (self._named.wait(id, timeout, self._setup, id.removeprefix(outbox.PREFIX))).decode()
        except ResultPending:
            raise ResultPending(f"Message {id} is not done yet: it is in the outbox.") from None
        except ResultUnknown:
            raise ResultUnknown(
                f"Nothing is known of {id}: its transaction is not committed or was rolled back, its task has no keep=, or its "
                "time is over."
            ) from None

    def hand_on(self) -> int | None:
        """Hand on a bounded number. Raises when the queue's engine does not take it. None: all that it saw is held back."""
        end = time.monotonic() + LOOKS / 1000
        while True:
            handed_on, held_back = self._hand_on_some()
            if handed_on or held_back < AT_ONCE:
                return handed_on
            if time.monotonic() > end:
                self._patience = 0.0
                return None

    def _hand_on_some(self) -> tuple[int, int]:
        """How many were handed on, had expired or were refused; and how many held back."""
        if (now := time.monotonic()) >= self._upkeep_at:
            self._upkeep_at = now + (SWEEP if now > self._put_off_until else SOON / 1000)
            self.store.tend()
            if self._names:
                self.store.results.tidy()
        claim = self.store.claim([outbox.TOPIC], self._at_once, LEASE)
        self._at_once = AT_ONCE
        self._patience = max(0, self._upkeep_at - now)
        if claim.next_due is not None:
            self._patience = min(self._patience, max(0, claim.next_due - claim.now) / 1000)
        if not claim.messages:
            return 0, 0
        ends: list[End] = []
        try:
            kept = self._turns.in_turn(self._away.answering(self._read(claim, ends), ends), ends, claim.now)
            self._put(kept, ends, claim.now)
        except BideError as error:
            ended = {end.id for end in ends}
            left = [each for each in claim.messages if each.id not in ended]
            later = self._kept_for_later(left, apart=isinstance(error, QueueFull))
            if not self._target.capabilities.idempotent and isinstance(error, QueueFull | Unavailable):
                never = {each.id for each in left if each.attempt == 1}  # no earlier try, which may have got there
                self.store.settle([end for end in later if end.id in never])  # so they can be cancelled
                later = [end for end in later if end.id not in never]
            self._settle([*ends, *later])
            raise
        self._settle(ends)
        held_back = sum(end.verdict == "release" for end in ends)
        if 2 * held_back > len(ends) and sum(len(each.body) for each in claim.messages) <= LIGHT * len(ends):
            self._at_once = MAX_BATCH
        return len(ends) - held_back, held_back

    def _settle(self, ends: Sequence[End]) -> None:
        """What is put off stays leased so long, and keeps its due time: so claims pass over it, and it keeps its place before
        what was sent later with its key.
        """
        if done := [end for end in ends if end.verdict != "release" or not end.delay]:
            self.store.settle(done)
            self._turns.gone([end for end in done if end.verdict != "release"])
        for delay in {end.delay for end in ends if end.verdict == "release" and end.delay}:
            put_off = [Hold(end.topic, end.id, end.token) for end in ends if (end.verdict, end.delay) == ("release", delay)]
            self.store.extend(put_off, delay)
            self._put_off_until = max(self._put_off_until, time.monotonic() + delay / 1000)
            self._upkeep_at = min(self._upkeep_at, time.monotonic() + min(delay, SOON) / 1000)
            self._patience = min(self._patience, min(delay, SOON) / 1000)

    def _bring(self, each: Stored, briefly_held: bool) -> Sent | None:
        """Hand on one that waits, whoever has it. `briefly_held`: it is not due at once, as it is to be changed now."""
        claimed = outbox.claimed_of(each)
        now = self.store.claim([outbox.NOBODY], 1, LEASE).now  # the time of its database: nothing is there
        new = outbox.handed_on(claimed, now, once=True)
        if new is None:
            return None
        if briefly_held and (new.delay if new.at is None else new.at - now) < HELD:
            new = replace(new, at=None, delay=HELD)
        try:
            [sent] = self._target.put([new])
        except ConfirmTimeout as error:
            [sent] = error.done  # it is there; whether what follows is confirmed is told by that
        self._name([(claimed, new)], [sent], now)
        self.waiting.take_out(each.id)
        return sent

    def _kept_for_later(self, left: Sequence[Claimed], *, apart: bool) -> list[End]:
        """Until others have been tried. `apart`: the largest one, which may be why a server is full, is tried by itself."""
        largest, pause = max((len(each.body) for each in left), default=0), 2 * self._pause + SOON
        return [end_of(each, "release", pause + LATER * (apart and len(each.body) == largest)) for each in left]

    def _stays(self, claimed: Claimed, error: Unsupported | BadHook) -> End:
        _log.warning("A message stays in the outbox: %s", error)
        self._for_others = True
        return end_of(claimed, "release", LATER * min(claimed.attempt, OFTEN))

    def _read(self, claim: Claim, ends: list[End]) -> list[Kept]:
        """What is to be handed on. The ends of all others are added to the list."""
        kept: list[Kept] = []
        for each in sorted(claim.messages, key=lambda each: each.id):
            try:
                new = outbox.handed_on(each, claim.now, once=self._target.capabilities.idempotent)
            except Unsupported as error:
                ends.append(self._stays(each, error))
            except BadBody as error:
                ends.append(_refused(each, error))
            else:
                if new is None:
                    ends.append(end_of(each))
                else:
                    kept.append((each, new))
        return kept

    def _put(self, kept: Sequence[Kept], ends: list[End], now: int) -> None:
        """Together; if that is refused, one by one, and those that can't be sent become dead letters of the outbox.

        What this engine can't take stays, for a relay to another one; and what a hook of this relay has spoilt.
        """
        if not kept:
            return
        try:
            sent: Sequence[Sent] = self._target.put([new for _, new in kept])
        except OutcomeUnknown as error:
            if isinstance(error.__cause__, BadMessage):  # the one that is refused has taken others along
                self._put_singly(kept, ends, now)
                return
            kept, sent = self._done(kept, ends, error, now)
        except Unavailable as error:
            self._away.put_off(kept, ends, error, LATER)
            return
        except (BadMessage, Unsupported, QueueFull) as error:
            if len(kept) > 1:
                self._put_singly(kept, ends, now)
            elif isinstance(error, Unsupported | BadHook):
                ends.append(self._stays(kept[0][0], error))
            elif isinstance(error, BadMessage):
                ends.append(_refused(kept[0][0], error))
            else:
                raise
            return
        else:
            self._away.answered(kept)
        self._name(kept, sent, now)
        ends += [end_of(claimed) for claimed, _ in kept]

    def _done(
        self, kept: Sequence[Kept], ends: list[End], error: OutcomeUnknown, now: int
    ) -> tuple[Sequence[Kept], Sequence[Sent]]:
        """What was handed on of a batch, with its answers. The rest is put off, and keeps no others back: nor does what is
        sent to the same parts of the queue's engine, which rest for a while.

        What was not confirmed is sent again, by the same operation, for as long as the queue's engine is sure to know it.
        """
        told = error.done or error.answers
        if not any(told):
            self._away.put_off(kept, ends, error, LATER)
            return [], []
        self._away.tell(error, LATER)
        handed_on: list[Kept] = []
        sent: list[Sent] = []
        answers = error.answers or [None] * len(kept)
        for (claimed, new), answer, done in zip(kept, answers, told, strict=True):
            each = [(claimed, new)]
            age = 0 if claimed.began is None else now - claimed.began
            if done is not None:
                self._away.answered(each)
            if answer is None:
                self._away.rest(each, LATER)
            if answer is not None or (done is not None and age >= SURE):
                handed_on.append((claimed, new))
                sent.append(done)
            elif done is not None or self._away.answering(each, ends):
                ends.append(end_of(claimed, "release", LATER if done is None else min(max(LATER, age), LONGEST)))
        return handed_on, sent

    def _put_singly(self, kept: Sequence[Kept], ends: list[End], now: int) -> None:
        """One that stays, or is too large for what is left, keeps no others back, but for later ones of its key."""
        full: QueueFull | None = None
        stuck: set[outbox.Name] = set()
        for claimed, new in kept:
            if not self._away.answering([(claimed, new)], ends):
                continue
            name = outbox.Name(new.topic, new.key)
            if name in stuck:
                ends.append(end_of(claimed, "release", SOON))
                continue
            try:
                self._put([(claimed, new)], ends, now)
            except QueueFull as error:
                full = error
            else:
                if ends[-1].verdict != "release":
                    continue
            if name.key is not None:
                stuck.add(name)
        if full is not None:
            raise full

    def _name(self, kept: Sequence[Kept], sent: Sequence[Sent], now: int) -> None:
        """Remember which ids they have now, of those whose results are kept. They leave the outbox after that."""
        if not self._target.capabilities.results:
            return
        pairs = [(claimed, each) for (claimed, _), each in zip(kept, sent, strict=True)]
        asked = [(claimed, each, keep) for claimed, each in pairs if (keep := outbox.keep_of(claimed)) is not None]
        if asked:
            self._names = True
            keeps = {each.topic: keep for _, each, keep in asked}
            self._keeping.expect(expected([each for _, each, _ in asked], keeps), None)
            self.store.results.fulfil([outbox.handed_on_as(*each, now) for each in asked])

    def run(self) -> int:
        """Hand on what comes, until this is stopped or closed; how many messages that were."""
        total, self._stops = 0, self._closed
        lead = self.leaders.new()
        try:
            while not self._stops:
                try:
                    if not self._work(lead):
                        continue
                    if some := self.hand_on():
                        total += some
                        self._pause = SOON
                    else:
                        lead.leave()
                        self._wait()
                except BideError as error:  # also one of rights, which may be granted
                    lead.leave()
                    self._try_later(error)
        finally:
            self.leaders.end(lead)
        return total

    def _work(self, lead: Leader) -> bool:
        """Whether this relay is the one at work now. If not, it has waited for a while."""
        self.store.open()
        if self._for_others and time.monotonic() > self._gave_way + LATER / 1000:
            self._for_others, self._gave_way = False, time.monotonic()
            lead.leave()
            away = 2 * POLL
        else:
            away = lead.taken()
        if away:
            self._pause_for(round(1000 * away))
        return not away

    def _wait(self) -> None:
        self.waits = True
        try:
            self.store.wait([outbox.TOPIC], self._patience)
        finally:
            self.waits = False

    def stop(self) -> None:
        """Have `run` end when what it has claimed is handed on."""
        self._stops = True
        self._end.set()

    def _try_later(self, error: BideError) -> None:
        if not self._stops:
            _log.warning("Messages stay in the outbox, and are tried again in %.1f s: %s", self._pause / 1000, error)
            self._pause_for(self._pause)
            self._pause = min(2 * self._pause, LATER)

    def _pause_for(self, ms: int) -> None:
        self._end.clear()  # which the last pause has set
        if not self._stops:
            self._end.wait(ms / 1000)

    def hand_on_all(self) -> int:
        """Hand on what there is; how many messages that were. Raises at the end, if some had to be put off.

        None, if another relay is at work all the time.
        """
        total = 0
        self._away.begin()
        self.store.open()
        lead, until = self.leaders.new(), time.monotonic() + LEAD / 1000 + POLL
        try:
            while (away := lead.taken()) and time.monotonic() < until and not self._closed:
                Signal().wait(away)
            end = time.monotonic() + MOST / 1000  # what is held back comes again
            while not away:
                some = self.hand_on()
                if not some and (some == 0 or self._away.left is None or time.monotonic() > end):
                    break
                total += some or 0
                away = lead.taken()
        finally:
            self.leaders.end(lead)
        if self._away.left is not None:
            raise self._away.left
        return total

    def end_waits(self) -> None:
        """Whoever waits to be told an id is told that the queue is closed, and who hands on ends."""
        self._closed = True
        self.stop()
        self._named.end_waits()

    def close(self) -> None:
        self._named.close(time.monotonic() + CLOSING)
        self.store.close()


def _refused(claimed: Claimed, error: BadMessage) -> End:
    _log.error("A message of the outbox was refused, and is a dead letter of it now: %s", error)
    return end_of(claimed, "dead", error=str(error))
