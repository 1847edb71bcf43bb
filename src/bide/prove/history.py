"""A history: the file in which a process records what it does to a queue, and which message each record was about.

    with history.sending("order.cancel", {"order": 42}, delay="15m") as op:
        op.ok(queue.send("order.cancel", op.body, delay="15m"))

    with history.receiving(["order.cancel"], lease="30s") as op:
        found = op.ok(queue.receive("order.cancel", lease="30s"))

    with history.ending("ack", found[0]) as op:
        found[0].ack()
        op.ok()

When an error leaves the block, the operation failed if the error promises that nothing was done. After any other error,
and when its process dies, its outcome is unknown. A handler whose worker ends its deliveries records `delivered` when it
begins, and leaves the end unknown: `history.ending("ack", delivery)` and nothing more.
"""

import itertools
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Self, Unpack

import msgspec

from bide.core.times import duration_ms, instant_ms
from bide.engines.base import OPERATION_MS, Claim, End, Ended, Hold
from bide.prove.facts import Act, DeliveryFacts, Facts, MessageFacts, Send
from bide.prove.operation import (
    BatchOperation,
    CallsOperation,
    ChangeOperation,
    CountOperation,
    Each,
    EndOperation,
    Fault,
    HandlerOperation,
    ReceiveOperation,
    Returned,
    SendOperation,
    SettingClock,
    digest,
    held,
    ms,
    tag_of,
    write_claimed,
    write_delivered,
)
from bide.prove.record import RecordLog
from bide.queue import AsyncDelivery, Delivery
from bide.queue.deliveries import planned_of
from bide.queue.envelope import DEADLINE
from bide.types import Duration, Info, Outgoing, SendOptions, Sent, Stats

ENDS = {"done": "ack", "retry": "retry", "release": "release", "dead": "bury"}
"""An engine's verdict on a delivery: the queue's verb for it."""


class History:
    """What one process did, in a file of its own."""

    def __init__(self, path: Path | str, process: str | None = None) -> None:
        self.log: RecordLog = RecordLog(path, process)
        self._salt = secrets.token_hex(4)
        self._tags = itertools.count()

    # sending

    def sending(
        self, topic: str, body: object = None, *, again: SendOperation | None = None, **options: Unpack[SendOptions]
    ) -> SendOperation:
        """Send the operation's `body`: it holds a tag that no other message has. `again`: the send that this one repeats.

        A send within a transaction (`connection=`) can't be recorded: nobody knows yet whether it will be committed.
        """
        chosen: dict[str, Any] = {**options}
        if chosen.pop("connection", None) is not None:
            raise ValueError("A send within a transaction can't be recorded: leave out connection=.")
        operation = chosen.pop("operation", None)
        needs = None
        if chosen.get("depends_on") is not None:
            needs = [str(each) for each in chosen.pop("depends_on")]
            chosen["delay"] = chosen.pop("deadline", None) or DEADLINE
        tag, tagged = self._tagged(body) if again is None else (again.tag, again.body)
        return SendOperation(self.log, topic, tag, Outgoing(tagged, **chosen), operation, needs=needs)

    def sending_many(self, topic: str, messages: Iterable[object], *, operation: str | None = None) -> BatchOperation:
        """Send the operation's `messages` by one send_many. A message is a body, or an Outgoing with options of its own."""
        batch = self.log.new_call()
        sends = []
        for number, each in enumerate(messages):
            message = each if isinstance(each, Outgoing) else Outgoing(each)
            tag, tagged = self._tagged(message.body)
            own = None if operation is None else f"{operation}#{number}"
            sends.append(SendOperation(self.log, topic, tag, msgspec.structs.replace(message, body=tagged), own, batch))
        return BatchOperation(sends)

    def _tagged(self, body: object) -> tuple[str, object]:
        tag = f"{self._salt}-{next(self._tags):x}"
        return tag, {"tag": tag, "body": body}

    # changing

    def cancelling(
        self, message: str | Sent | None = None, *, topic: str | None = None, key: str | None = None
    ) -> ChangeOperation:
        return ChangeOperation(self.log, "cancel", id=None if message is None else str(message), topic=topic, key=key)

    def rescheduling(
        self,
        message: str | Sent | None = None,
        *,
        topic: str | None = None,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
    ) -> ChangeOperation:
        id = None if message is None else str(message)
        instant = None if at is None else instant_ms(at)
        return ChangeOperation(self.log, "reschedule", id=id, topic=topic, key=key, delay=ms(delay), at=instant)

    def requeuing(self, topic: str, ids: Sequence[str] | None = None, *, delay: Duration = 0) -> CountOperation:
        return CountOperation(self.log, "requeue", topic=topic, ids=ids, delay=duration_ms(delay))

    def purging(self, topic: str, state: str) -> CountOperation:
        return CountOperation(self.log, "purge", topic=topic, state=state)

    def pausing(self, topic: str) -> EndOperation:
        return EndOperation(self.log, "pause", topic=topic)

    def resuming(self, topic: str) -> EndOperation:
        return EndOperation(self.log, "resume", topic=topic)

    # receiving

    def receiving(self, topics: Sequence[str], *, limit: int = 1, lease: Duration = "30s") -> ReceiveOperation:
        return ReceiveOperation(self.log, "receive", topics=list(topics), limit=limit, lease=duration_ms(lease))

    def listening(self, topics: Sequence[str], *, lease: Duration = "15s") -> ReceiveOperation:
        """Around a listen or a worker. Record what it hands out as `delivered`; nobody sees what it prefetches."""
        return ReceiveOperation(self.log, "listen", topics=list(topics), lease=duration_ms(lease))

    def delivered(self, delivery: Delivery | AsyncDelivery, *, lease: Duration) -> None:
        """Record a delivery of a receive that is not recorded."""
        write_delivered(self.log, delivery, duration_ms(lease))

    def ending(self, verb: str, delivery: Delivery | AsyncDelivery, *, delay: Duration | None = None) -> EndOperation:
        """`verb`: ack, retry, release or bury."""
        return EndOperation(self.log, verb, **held(delivery), delay=ms(delay))

    def extending(self, delivery: Delivery | AsyncDelivery, lease: Duration) -> EndOperation:
        return EndOperation(self.log, "extend", **held(delivery), lease=duration_ms(lease))

    def handling(self, delivery: Delivery | AsyncDelivery, *, gates: Mapping[str, int] | None = None) -> HandlerOperation:
        """In a worker's handler, around all its work. Record the worker's queue with `record_engine`.

        gates: the locks and limits that the message has passed, with how many may be in each at once.
        """
        return HandlerOperation(
            self.log,
            "handle",
            **held(delivery),
            gates=None if gates is None else dict(gates),
            planned=planned_of(delivery.headers),
            needs=list(delivery.depends_on) or None,
        )

    def reading(self, id: str) -> Returned:
        """Read a result: call `ok` with it."""
        return Returned(self.log, "result", id=id)

    # the calls of an engine

    def claiming(self, topics: Sequence[str], *, limit: int, lease: int) -> ReceiveOperation:
        return ReceiveOperation(self.log, "receive", topics=list(topics), limit=limit, lease=lease)

    def claimed_again(self, claim: Claim) -> None:
        """The deliveries that a dead process holds. Asking for them hands out nothing and renews no lease."""
        for each in claim.messages:
            write_claimed(self.log, each, claim.now, 0, again=True)

    def settling(self, ends: Sequence[End]) -> Each[Ended]:
        return Each([EndOperation(self.log, ENDS[each.verdict], **held(each), delay=_set_by(each)) for each in ends])

    def extending_many(self, holds: Sequence[Hold], *, lease: int) -> Each[bool]:
        return Each([EndOperation(self.log, "extend", **held(each), lease=lease) for each in holds])

    def calling(self, ids: Sequence[str]) -> CallsOperation:
        """Messages whose turn it is at a gate: they come with the due time that they had first."""
        return CallsOperation([ChangeOperation(self.log, "call", id=each) for each in ids])

    # about the run

    def fault(self, kind: str, what: str = "") -> Fault:
        """A fault that is about to be injected. If no fault of its kind lands, the verdict is unknown.

        The checker gives a meaning to two kinds: a `rollback` begins when accepted changes may be forgotten, and lands
        when the server is back in its older state. With `lost claims` only claims and renewals may be forgotten.
        """
        return Fault(self.log, kind, what)

    def setting_clock(self) -> SettingClock:
        """Set the clock of the server: call `ok` with what it shows then. Call it once before the first send, too.

        From then on the checker knows what that clock shows, until it is set again: no `at=` may be delivered before.
        """
        return SettingClock(self.log, "clock")

    def left(self, messages: Iterable[Info], stats: Stats, *, drained: bool = True) -> None:
        """Record all that the queue holds at the end, and its counts. `drained`: no due message should be left."""
        call = self.log.new_call()
        for info in messages:
            self.log.write("left", "ok", call, **stored(info))
        by_topic = {
            name: {"scheduled": of.scheduled, "ready": of.ready, "leased": of.leased, "dead": of.dead}
            | {"dropped": of.dead_dropped, "paused": int(of.paused)}
            for name, of in stats.topics.items()
        }
        self.log.write("look", "ok", call, counts=by_topic, note="drained" if drained else None)

    def close(self) -> None:
        self.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def _set_by(end: End) -> int | None:
    """The delay that says when a message is due. One that is put aside comes later, or when it is called."""
    return None if end.aside else end.delay or None


def stored(info: Info) -> dict[str, object]:
    """The fields of the record of a message that is left."""
    return {
        "id": info.id,
        "topic": info.topic,
        "key": info.key,
        "tag": tag_of(info.body),
        "body": digest(info.body),
        "headers": digest(info.headers),
        "planned": planned_of(info.headers),
        "due": info.due,
        "attempt": info.attempt,
        "state": info.state,
    }


FORGOTTEN = OPERATION_MS * 1_000_000  # ns after which an operation may act again


def join_operations(facts: Facts) -> None:
    """Of several sends with one operation the first acts; it is known which when it was over before the others began."""
    named: dict[tuple[str, str | None, str], list[Send]] = {}
    for send in facts.sends.values():
        if send.operation is not None and send.result != "fail":
            named.setdefault((send.topic, send.key, send.operation), []).append(send)
    for group in named.values():
        group.sort(key=lambda send: send.began)
        first = group[0]
        for again in group[1:]:
            if again.began - first.began >= FORGOTTEN:
                first = again
                continue
            if again.id is not None and first.id not in (None, again.id):
                facts.split.append((first, again.id))
            again.repeated = first.result == "ok" and first.ended < again.began


def join_messages(facts: Facts) -> None:
    """Give each message its sends, and what was done to it by key."""
    for send in facts.sends.values():
        if send.id is not None and send.stored:
            facts.message(send.id).sends.append(send)
        if send.key is not None and send.result != "fail":
            facts.keyed.setdefault((send.topic, send.key), []).append(send)
    for message in facts.messages.values():
        if any(each.again for each in message.deliveries):
            message.deliveries = _once(message.deliveries)
        for delivered in message.deliveries:
            _recover(facts, message, delivered.tag, delivered.ended)
        if message.left is not None and facts.look is not None:
            _recover(facts, message, message.left.tag, facts.look.began)
    for name, acts in facts.by_key.items():
        _join_key(facts, facts.keyed.get(name, ()), acts)


def _once(deliveries: Sequence[DeliveryFacts]) -> list[DeliveryFacts]:
    """Drop a delivery that was asked for again, unless the process that got it first has no record of it."""
    tokens = {each.token for each in deliveries if not each.again}
    unwritten = {each.token: each for each in deliveries if each.again and each.token not in tokens}
    return [*(each for each in deliveries if not each.again), *unwritten.values()]


def _recover(facts: Facts, message: MessageFacts, tag: str | None, seen: int) -> None:
    """The tag of a message that was delivered or left says which send made it."""
    send = facts.sends.get(tag or "")
    if send is None or not send.stored:
        return
    mine = next((each for each in message.sends if each.tag == tag), None)
    if mine is None and send.id is None:
        send.id, mine = message.id, send
        facts.recovered += 1
        message.sends.append(send)
    elif mine is None:
        facts.split.append((send, message.id))
        mine = msgspec.structs.replace(send, id=message.id, due=None, result="unknown", ended=seen)
        message.sends.append(mine)
    if mine.result == "unknown":
        mine.ended = min(mine.ended, seen)


def _join_key(facts: Facts, sends: Sequence[Send], acts: list[Act]) -> None:
    """What was done by key was done to the message that had it, where only one can have had it."""
    ids = {send.id for send in sends}
    if len(ids) == 1 and None not in ids:
        facts.message(next(iter(ids)) or "").acts.extend(acts)
        acts.clear()
