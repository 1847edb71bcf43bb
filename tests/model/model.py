"""The model: what every engine must do, in the simplest code, over a dict of messages.

Each verb takes what was asked and what the engine answered. Where the promises leave an engine a choice (ids, tokens,
which of many come first), the model checks that the choice is allowed and takes it over; all else must be equal.
Every change of state is a step of `bide.core.lifecycle`.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from msgspec.structs import replace

from bide.core.times import Planned
from bide.engines.base import (
    OPERATION_MS,
    Capabilities,
    Claim,
    Claimed,
    End,
    Ended,
    Hold,
    Move,
    NewMessage,
    Past,
    Ref,
    Seen,
    Stored,
    Swept,
    Tended,
    Window,
)
from bide.types import CancelResult, Outcome, RescheduleResult, Sent, State, Stats
from tests.model.expected import (
    ANY_TEXT,
    Divergence,
    Expected,
    LeaseEnded,
    Message,
    agree,
    check_oldest,
    check_order,
    fits,
    insist,
)
from tests.model.leaving import Leaving

__all__ = ["Divergence", "Model"]


def operation_of(new: NewMessage) -> tuple[str, str | None, str | None]:
    return new.topic, new.key, new.operation


def _merged(held: bytes, new: bytes) -> bytes | None:
    """The list of both; None when the first is no list."""
    try:
        items = json.loads(held)
    except ValueError:
        return None
    return json.dumps(items + json.loads(new), separators=(",", ":")).encode() if isinstance(items, list) else None


class Model:
    """Is told every call and its answer. Raises Divergence when an answer breaks a promise."""

    def __init__(self, can: Capabilities, *, dead_for: int, dead_max: int, looks_again: int = 0) -> None:
        """`looks_again`: ms after which the engine looks again whether a clock that was behind has reached an instant."""
        self.can = can
        self.looks_again = looks_again
        self.expected: Expected = Expected()
        self.operations: dict[tuple[str, str | None, str | None], tuple[int, Sent]] = {}
        self.periods: dict[tuple[str, str | None], tuple[int, Sent]] = {}  # of what is sent once: until when
        self.requests: dict[str, list[Claimed]] = {}
        self.leaving: Leaving = Leaving(self.expected, dead_for=dead_for, dead_max=dead_max)

    @property
    def now(self) -> int:
        return self.expected.now

    def put(self, messages: Sequence[NewMessage], now: int, answer: Sequence[Sent]) -> None:
        self._at(now)
        agree("put's number of answers", len(messages), len(answer))
        for new, sent in zip(messages, answer, strict=True):
            first, same = self.operations.get(operation_of(new), (self.now - OPERATION_MS, None))
            if self.now - first < OPERATION_MS:
                agree(f"put again {new}", same, sent)
                continue
            self._put(new, sent)
            if new.operation:
                self.operations[operation_of(new)] = self.now, sent

    def _put(self, new: NewMessage, sent: Sent) -> None:
        self.leaving.meet(new.topic)
        when = self._planned(new.delay, new.at)
        until, only = self.periods.get((new.topic, new.key), (0, None))
        if new.unique_for is not None and only and self.now < until:
            told: Outcome = "duplicate" if new.if_exists == "keep" else "exists"
            agree(f"put {new}", replace(only, outcome=told), sent)
            return
        if new.past is not None and new.past.dead:
            self._put_dead(new, new.past, when, sent)
            return
        message = self._holder(new.topic, new.key)
        if new.max_wait is not None:
            new, when = self._bounded(new, when, message if message and message.pending else None)
        if message and new.if_exists in ("keep", "error") and not message.sends(new):
            outcome = "kept" if new.if_exists == "keep" else "exists"
            agree(f"put {new}", Sent(message.id, new.topic, message.due, outcome), sent)  # type: ignore[arg-type]
            return
        if message and message.pending and new.if_exists == "merge" and not message.attempt:
            body = _merged(message.sent.body, new.body)
            if body is None or len(body) <= new.largest:
                agree(f"put {new}", Sent(message.id, new.topic, message.due, "exists" if body is None else "merged"), sent)
                message.sent = message.sent if body is None else replace(message.sent, body=body)
                return
        if message and message.pending and new.if_exists != "merge":
            when = self._replace(message, new, when, sent)
        else:
            if message:
                message.key = None
            agree(f"put {new}", Sent(sent.id, new.topic, when.due, "created"), sent)
            insist(bool(sent.id) and sent.id not in self.expected.messages, f"put {new}: {sent.id!r} is not a new id.")
            if new.unique_for is not None:
                self.periods[new.topic, new.key] = self.now + new.unique_for, sent
            message = Message(sent.id, new, new.key, order=len(self.expected.messages))
            self.expected.add(message)
            message.step("send")
            if new.past is not None:
                self._live_through(message, new.past)
        message.plan(when)
        self._ripen(message)

    def _replace(self, message: Message, new: NewMessage, when: Planned, sent: Sent) -> Planned:
        later = new.if_exists == "later"
        if later:
            when = self._told(max(when.due, message.due), instant=when.instant or message.instant)
        agree(f"put {new}", Sent(message.id, new.topic, when.due, "postponed" if later else "replaced"), sent)
        message.step("replace")
        message.sent, message.attempt, message.last_error, message.order = new, 0, None, None
        message.traces = []
        return when

    def _put_dead(self, new: NewMessage, past: Past, when: Planned, sent: Sent) -> None:
        agree(f"put {new}", Sent(sent.id, new.topic, when.due, "created"), sent)
        insist(bool(sent.id) and sent.id not in self.expected.messages, f"put {new}: {sent.id!r} is not a new id.")
        message = Message(sent.id, new, new.key, order=len(self.expected.messages))
        self.expected.add(message)
        message.step("move in")
        message.plan(when)
        message.died = self.now
        self._live_through(message, past)

    def _live_through(self, message: Message, past: Past) -> None:
        message.attempt, message.last_error = past.attempt, past.error
        for record in past.traces if self.can.traces else ():
            message.record(record)

    def _bounded(self, new: NewMessage, when: Planned, message: Message | None) -> tuple[NewMessage, Planned]:
        """Not later than its longest wait after the first of such sends, of which none was delivered; a header tells it."""
        first = self.now
        if message and not message.attempt:
            first = int(message.sent.headers.get("bide-first", first))
        marked = {"bide-first": f"{first:013}", **new.headers}
        bound = first + (new.max_wait or 0)
        return replace(new, headers=marked), when if when.due <= bound else self._told(bound)

    def claim(
        self,
        topics: Sequence[str],
        limit: int,
        lease: int,
        request: str | None,
        now: int,
        answer: Claim,
        others: Iterable[int | None] = (),
    ) -> None:
        """`others`: when other clients were told to claim again. One client is enough for a message."""
        self._at(now)
        before = self.requests.get(request, []) if request else []
        live = {each.id: each for each in before if self.held(each)}
        if live:
            self._claim_again(topics, live, answer)
            return
        open_topics = set(topics) - self.expected.paused
        for topic in open_topics:
            self.leaving.meet(topic)
        waiting = [each for topic in open_topics for each in self.expected.of(topic, "scheduled")]
        ready = [each for topic in open_topics for each in self.expected.of(topic, "ready")]
        agree("claim's now", self.now, answer.now)
        count = len(answer.messages)
        insist(count <= limit, f"claim: {count} messages are more than the limit of {limit}.")
        vague = {each.id: each.held_up for each in [*waiting, *ready] if each.vague(self.now)}
        left = {each.id: each for each in ready}
        taken = [self._hand_out(claimed, left, lease) for claimed in answer.messages]
        for each in taken:
            each.request = request
        if self.can.ordered:
            check_order(*([each for each in some if not each.held_up] for some in (taken, left.values())))
        if not answer.more:
            sure = len(ready) - sum(each.id in vague for each in ready)
            agree("claim's count", max(count, min(limit, sure)), count)
            soonest = min(map(self._comes, waiting), default=None)
            if vague and answer.next_due is not None and self.now < answer.next_due <= max(vague.values()):
                soonest = answer.next_due
            at_once = count == limit and answer.next_due is not None and answer.next_due <= self.now
            in_time = partial(fits, soonest=soonest, now=self.now, ordered=self.can.ordered)
            later = soonest is not None and (answer.next_due is None or answer.next_due > soonest)
            left_to_others = not count and later and any(in_time(each) for each in others)
            insist(
                at_once or left_to_others or in_time(answer.next_due),
                f"claim: next due is {soonest}, not {answer.next_due}.",
            )
            starved = {each.topic for each in ready if each.id not in vague} - {each.topic for each in taken}
            insist(limit < len(set(topics)) or not starved, f"claim: nothing was taken from {starved}, though there was room.")
        if request:
            self.requests[request] = list(answer.messages)

    def _hand_out(self, claimed: Claimed, left: dict[str, Message], lease: int) -> Message:
        """Check one delivery, and remove it from the messages that may be handed out."""
        message = self.expected.messages.get(claimed.id)
        if message is None:
            raise Divergence(f"claim: {claimed} was never sent.")
        why = "paused or not asked for" if message.stage == "ready" else f"{message.stage}, due {message.due}"
        insist(claimed.id in left, f"claim: {claimed.id} of {message.topic} was handed out at {self.now} though it is {why}.")
        sent, attempt = message.sent, message.attempt + 1
        if message.began_by is not None:
            known = message.claimed_at <= (claimed.began or 0) <= message.began_by
            insist(known, f"claim: {claimed} began between {message.claimed_at} and {message.began_by}, when its lease ended.")
            message.began, message.began_by = claimed.began, None
        expected = Claimed(
            message.id, message.topic, sent.body, sent.headers, message.key, message.due, message.since,
            attempt if self.can.attempts else claimed.attempt, sent.max_attempts, claimed.token, message.began,
        )  # fmt: skip
        agree("claim", expected, claimed)
        insist(
            claimed.token > message.token or not self.can.fencing,
            f"claim: the token {claimed.token!r} of {claimed.id} is not above {message.token!r}, the one before.",
        )
        message.step("claim")
        message.attempt, message.token, message.lease_until = attempt, claimed.token, self.now + lease
        message.claimed_at = self.now
        return left.pop(claimed.id)

    def _claim_again(self, topics: Sequence[str], live: Mapping[str, Claimed], answer: Claim) -> None:
        agree("claim again, now", self.now, answer.now)
        insist(bool(topics) or answer.next_due is None, f"claim of no topics: next due is none, not {answer.next_due}.")
        agree("claim again, ids", sorted(live), sorted(each.id for each in answer.messages))
        for got in answer.messages:
            now_its_key = self.expected.messages[got.id].key  # a successor may have taken it over
            same = live[got.id]
            agree("claim again", same if got.key == same.key else replace(same, key=now_its_key), got)

    def settle(self, ends: Sequence[End], now: int, answer: Sequence[Ended]) -> None:
        self._at(now)
        agree("settle's number of answers", len(ends), len(answer))
        for end, got in zip(ends, answer, strict=True):
            agree(f"settle {end}", self._end(end), got)

    def _end(self, end: End) -> Ended:
        message = self.held(end)
        if message is None:
            return "lost"
        if end.verdict == "done":
            message.step("ack")
            return "done"
        if end.trace is not None and end.verdict != "release" and self.can.traces:
            message.record(end.trace)
        if end.verdict == "dead" or (end.verdict == "retry" and message.is_last(end.attempts) and self.can.attempts):
            self._bury(message, end.error)
            return "dead"
        kept = end.verdict == "release" and not end.delay
        due = message.due if kept else self._due(end.delay)
        if end.aside and message.expires is not None and message.expires - 1 > self.now:
            due = min(due, message.expires - 1)
        if message.too_late(max(due, self.now)):
            message.step("expire")
            return "expired"
        if end.verdict == "retry":
            message.step("retry")
            message.last_error = end.error
            message.sent = replace(message.sent, max_attempts=end.attempts or message.sent.max_attempts)
        else:
            message.step("release")
            message.attempt -= 1
        if end.began is not None:
            message.began, message.began_by = end.began, None
        message.come_back(due)
        self._ripen(message)
        return "scheduled"

    def extend(self, holds: Sequence[Hold], lease: int, now: int, answer: Sequence[bool]) -> None:
        self._at(now)
        held = [self.held(hold) for hold in holds]
        for message in held:
            if message:
                message.lease_until = self.now + lease
        agree(f"extend {holds}", [message is not None for message in held], list(answer))

    def cancel_seen(self, refs: Sequence[Ref], seen: Sequence[Seen], now: int, answer: Sequence[CancelResult]) -> None:
        """Named by their ids, each once."""
        self._at(now)
        whole = True
        for ref, each, got in zip(refs, seen, answer, strict=True):
            message = self._find(ref)
            expected = CancelResult[self._unmoved(message, got.name)]
            if message and message.pending:
                same = message.due == each.due and each.body in (None, message.sent.body)
                expected = CancelResult.CANCELLED if same else CancelResult.GONE
            agree(f"cancel {ref}, if it is as {each}", expected, got)
            whole = whole and expected is CancelResult.CANCELLED
        if whole:
            self.cancel(refs, now, answer)

    def cancel(self, refs: Sequence[Ref], now: int, answer: Sequence[CancelResult]) -> None:
        self._at(now)
        agree("cancel's number of answers", len(refs), len(answer))
        for ref, got in zip(refs, answer, strict=True):
            message = self._find(ref)
            expected = CancelResult[self._unmoved(message, got.name)]
            if message and message.pending:
                message.step("cancel")
                expected = CancelResult.CANCELLED
            agree(f"cancel {ref}", expected, got)

    def reschedule(self, moves: Sequence[Move], now: int, answer: Sequence[RescheduleResult]) -> None:
        self._at(now)
        agree("reschedule's number of answers", len(moves), len(answer))
        for move, got in zip(moves, answer, strict=True):
            message = self._find(move.ref)
            expected = RescheduleResult[self._unmoved(message, got.name)]
            if message and message.pending and move.seen not in (None, message.due):
                expected = RescheduleResult.GONE
            elif message and message.pending:
                message.step("reschedule")
                message.plan(self._moved(message, move))
                message.order = None
                self._ripen(message)
                expected = RescheduleResult.MOVED
            agree(f"reschedule {move}", expected, got)

    def _unmoved(self, message: Message | None, told: str) -> str:
        """The answer for one that is not pending. A dead letter that is too old, or one too many, may be gone already."""
        dropped = told == "GONE" and message is not None and self.leaving.may_be_dropped(message)
        return "GONE" if message is None or dropped else message.unmoved

    def tend(self, budget: int, now: int, answer: Sequence[Tended], left: Iterable[str] | None, by: int | None = None) -> None:
        """All calls of a tend, until one said that nothing is left to do. `left`: dead letters that a scan shows afterwards."""
        self._at(now)
        for each in answer:
            work = each.returned + each.expired + each.dropped
            insist(work <= budget, f"tend: {each} is more than the budget of {budget}.")
        insist(not answer[-1].more, f"tend: there is always more, last {answer[-1]}.")
        until = self.now if by is None else min(self.now, by)
        ended = [each for each in self.expected.alive.values() if each.lease_over(until)]
        agree("tend, leases returned", len(ended), sum(each.returned for each in answer))
        buried = [each for each in ended if each.last and self.can.attempts]
        agree("tend, buried", len(buried), sum(each.buried for each in answer))
        for message in ended:
            if self.can.traces:
                message.record(LeaseEnded(message.attempt, message.claimed_at, self.now))
            if message in buried:
                self._bury(message, ANY_TEXT)
            elif message.too_late(self.now):
                message.step("expire")
            else:
                message.step("lease ends")
                message.order = None
                if message.began is None:
                    message.began_by = self.now
        self.leaving.expired(sum(each.expired for each in answer))
        self.leaving.dropped(sum(each.dropped for each in answer), None if left is None else set(left))

    def requeue(
        self,
        topic: str,
        ids: Sequence[str] | None,
        times: tuple[int, int],
        limit: int,
        now: int,
        answer: Swept,
        after: Sequence[Stored],
    ) -> None:
        """`times`: the delay, and the time over which they are spread. `after`: what a scan of the topic shows afterwards."""
        self._at(now)
        self.leaving.meet(topic)
        dead = sorted(self.expected.of(topic, "dead"), key=lambda each: each.died)
        asked = [each for each in dead if ids is None or each.id in ids]
        shown = {each.id: each for each in after}
        taken = [each for each in dead if each.id not in shown or shown[each.id].state != "dead"]
        if ids is None:
            check_oldest("requeue", asked[:limit], taken)
        else:
            fits = len(taken) == answer.count and {each.id for each in taken} <= set(ids)
            insist(fits, f"requeue: {answer} of {ids}, and {taken} are not dead any more.")
        delay, over = times
        dues = [self._due(delay + place * over // limit) for place in range(len(taken))]
        agree("requeue, due times", dues, sorted(shown[each.id].due for each in taken if each.id in shown))
        had_key = [each for each in taken if each.key is not None]
        # of several that had one key, whichever the engine gave it to comes first
        for message in sorted(taken, key=lambda each: each.id in shown and shown[each.id].key is None):
            if self._holder(topic, message.key):
                message.key = None
            message.step("requeue")
            message.plan(self._told(shown[message.id].due))
            message.attempt, message.last_error, message.order = 0, None, None
            self._ripen(message)
        agree("requeue", Swept(min(limit, len(asked)), len(asked) > limit, sum(each.key is None for each in had_key)), answer)

    def vague(self, topic: str, now: int) -> bool:
        """Whether the engine may not know at this time which messages of a topic are ready."""
        self._at(now)
        return bool(self.expected.vague(topic))

    def purge(self, topic: str, state: State, limit: int, now: int, answer: Sequence[Swept]) -> None:
        """All pages of a purge, until it said that nothing is left."""
        self._at(now)
        for each in answer:
            insist(each.count <= limit, f"purge: {each} is more than the limit of {limit}.")
        insist(not answer[-1].more, f"purge: there is always more, last {answer[-1]}.")
        here = self.expected.of(topic, state)
        agree(f"purge {topic} {state}, count", len(here), sum(each.count for each in answer))
        for message in here:
            message.step("purge")
        if state == "dead":
            self.expected.dropped.pop(topic, None)
        else:
            self.leaving.meet(topic)

    def purge_named(self, topic: str, ids: Sequence[str], limit: int, now: int, answer: Swept, after: Sequence[Stored]) -> None:
        """`after`: the dead letters that a scan of the topic shows afterwards."""
        self._at(now)
        dead = [each for each in self.expected.of(topic, "dead") if each.id in ids]
        left = {each.id for each in after}
        gone = [each for each in dead if each.id not in left]
        agree(f"purge {topic} {ids}", Swept(min(limit, len(dead)), len(dead) > limit), answer)
        agree(f"purge {topic} {ids}, dead letters that are gone", answer.count, len(gone))
        for message in gone:
            message.step("purge")

    def pause(self, topic: str, paused: bool) -> None:
        (self.expected.paused.add if paused else self.expected.paused.discard)(topic)

    def get(self, refs: Sequence[Ref], now: int, answer: Sequence[Stored | None]) -> None:
        self._at(now)
        agree("get's number of answers", len(refs), len(answer))
        for ref, got in zip(refs, answer, strict=True):
            self.expected.check_get(ref, self._find(ref), got)

    def scan(self, topic: str, state: State | None, now: int, answer: Iterable[Stored]) -> None:
        """All pages of a scan together."""
        self._at(now)
        self.expected.check_scan(topic, state, answer)

    def stats(self, topic: str | None, window: Window | None, now: int, answer: Stats) -> None:
        self._at(now)
        self.expected.check_stats(topic, window, answer)

    def held(self, named: Claimed | End | Hold) -> Message | None:
        """The message of a delivery that has not ended."""
        message = self.expected.messages.get(named.id)
        mine = message and (message.stage, message.topic, message.token) == ("leased", named.topic, named.token)
        return message if mine else None

    def moments(self) -> list[int]:
        """Instants at which something happens by time alone, in order."""
        found = {first + OPERATION_MS for first, _ in self.operations.values()}
        for each in self.expected.alive.values():
            if not each.ended:
                times = (
                    max(each.due, each.held_up) if each.pending else each.due,
                    each.expires,
                    each.lease_until,
                    each.died + self.leaving.dead_for if each.stage == "dead" else None,
                )
                found.update(time for time in times if time is not None)
        return sorted(found)

    def _at(self, now: int) -> None:
        self.expected.now = max(self.now, now)
        self.expected.wall = min(self.now, now) if self.can.instants else self.now
        self.expected.forget_ended()
        for message in self.expected.alive.values():
            self._ripen(message)

    def _ripen(self, message: Message) -> None:
        """What time alone does to a message."""
        early = message.instant and message.due > self.expected.wall
        if self.looks_again and early and message.pending and message.due <= self.now:
            message.held_up = self.now + self.looks_again
        if message.stage == "scheduled" and message.due <= self.now and not early:
            message.step("due")
        elif message.stage == "ready" and early:
            message.step("clock set back")
        if message.pending and message.due <= self.now and message.too_late(self.now):
            message.step("expire")
            self.leaving.fade(message)

    def _due(self, delay: int, at: int | None = None) -> int:
        due = self.now + delay if at is None else at if at > self.expected.wall else self.now
        return -(-due // self.can.tick) * self.can.tick

    def _planned(self, delay: int, at: int | None) -> Planned:
        return self._told(self._due(delay, at), instant=at is not None and at > self.expected.wall)

    def _told(self, due: int, *, instant: bool = False) -> Planned:
        """While the clock is behind, engine time goes on at half its speed until the clock has come to an instant."""
        wall = self.expected.wall
        instant = instant and self.can.instants and due > wall
        return Planned(due, max(due, self.now + (due - wall + 1) // 2) if instant else due, instant)

    def _comes(self, message: Message) -> int:
        """When a message that is not ready is."""
        return message.due if message.due > self.now else self._told(message.due, instant=True).since

    def _moved(self, message: Message, move: Move) -> Planned:
        if move.origin == "now":
            return self._planned(move.delay, move.at)
        begin = message.due if move.origin == "due" else message.since
        return self._told(min(begin + move.delay, self._due(self.can.max_delay)), instant=message.instant)

    def _bury(self, message: Message, error: str | None) -> None:
        message.step("bury")
        message.last_error, message.died = error, self.now

    def _holder(self, topic: str | None, key: str | None) -> Message | None:
        """The message that has the key. A dead message remembers its key, but does not have it any more."""
        pending_or_leased = self.expected.of(topic or "", "scheduled", "ready", "leased") if key else []
        return next((each for each in pending_or_leased if each.key == key), None)

    def _find(self, ref: Ref) -> Message | None:
        found = self.expected.messages.get(ref.id) if ref.id else self._holder(ref.topic, ref.key)
        self.leaving.meet_one(ref)
        return found
