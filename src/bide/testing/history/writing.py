"""The words in which a program writes down what it does to a queue. They have no colour: sync and async code use the same.

    with history.sending("order.cancel", {"order": 42}, delay="15m") as op:
        op.ok(queue.send("order.cancel", op.body, delay="15m"))

    with history.receiving(["order.cancel"], lease="30s") as op:
        found = op.ok(queue.receive("order.cancel", lease="30s"))

    with history.ending("ack", found[0]) as op:
        found[0].ack()
        op.ok()

An operation that is left by an error did not happen if the error promises so; after any other error, and when its
process dies, it is unknown. A handler whose worker ends its deliveries writes `delivered` when it begins and leaves
what the worker will do unknown: `history.ending("ack", delivery)`, without more.
"""

import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path

from bide.core.options import MAX_ATTEMPTS
from bide.core.when import duration_ms, instant_ms
from bide.engines.base import Claim, End, Ended, Hold
from bide.queue import AsyncDelivery, Delivery
from bide.testing.history.operation import (
    Batch,
    Changing,
    Claiming,
    Counting,
    Each,
    Ending,
    Fault,
    Handling,
    Receiving,
    Sending,
    digest,
    held,
    tag_of,
    write_claimed,
    write_delivered,
)
from bide.testing.history.record import Log
from bide.types import Duration, IfExists, Info, Sent, Stats

ENDS = {"done": "ack", "retry": "retry", "release": "release", "dead": "bury"}
"""What users call the ends of a delivery, by what engines call them."""


class History:
    """What one process did, in a file of its own."""

    def __init__(self, path: Path | str, process: str | None = None) -> None:
        self.log: Log = Log(path, process)
        self._salt = secrets.token_hex(4)

    # sending

    def sending(
        self,
        topic: str,
        body: object = None,
        *,
        delay: Duration | None = None,
        at: datetime | None = None,
        key: str | None = None,
        if_exists: IfExists = "keep",
        expires_in: Duration | None = None,
        max_attempts: int | None = None,
        headers: Mapping[str, str] | None = None,
        operation: str | None = None,
        again: Sending | None = None,
    ) -> Sending:
        """Send the operation's own `body`, which holds a tag that no other has. `again`: the same send, tried once more."""
        call = self.log.new_call()
        tag = f"{self._salt}-{call:x}" if again is None else again.tag
        tagged = {"tag": tag, "body": body} if again is None else again.body
        return Sending(
            self.log,
            call,
            tag,
            tagged,
            headers or {},
            topic=topic,
            key=key,
            delay=None if at is not None else duration_ms(delay or 0),
            at=None if at is None else instant_ms(at),
            expires_in=None if expires_in is None else duration_ms(expires_in),
            max_attempts=max_attempts or MAX_ATTEMPTS,
            if_exists=if_exists if key is not None else None,
            operation=operation,
        )

    def sending_many(self, topic: str, bodies: Iterable[object], *, operation: str | None = None) -> Batch:
        """Send the operation's own `bodies`, by one send_many."""
        batch = self.log.new_call()
        sends = []
        for place, body in enumerate(bodies):
            call = self.log.new_call()
            tag = f"{self._salt}-{call:x}"
            own = None if operation is None else f"{operation}#{place}"
            tagged = {"tag": tag, "body": body}
            options = {"delay": 0, "max_attempts": MAX_ATTEMPTS, "operation": own, "batch": batch}
            sends.append(Sending(self.log, call, tag, tagged, {}, topic=topic, **options))
        return Batch(sends)

    # changing

    def cancelling(self, message: str | Sent | None = None, *, topic: str | None = None, key: str | None = None) -> Changing:
        return Changing(self.log, "cancel", id=None if message is None else str(message), topic=topic, key=key)

    def rescheduling(
        self,
        message: str | Sent | None = None,
        *,
        topic: str | None = None,
        key: str | None = None,
        delay: Duration | None = None,
        at: datetime | None = None,
    ) -> Changing:
        return Changing(
            self.log,
            "reschedule",
            id=None if message is None else str(message),
            topic=topic,
            key=key,
            delay=None if delay is None else duration_ms(delay),
            at=None if at is None else instant_ms(at),
        )

    def requeuing(self, topic: str, ids: Sequence[str] | None = None, *, delay: Duration = 0) -> Counting:
        return Counting(self.log, "requeue", topic=topic, ids=ids, delay=duration_ms(delay))

    def purging(self, topic: str, state: str) -> Counting:
        return Counting(self.log, "purge", topic=topic, state=state)

    def pausing(self, topic: str) -> Ending:
        return Ending(self.log, "pause", topic=topic)

    def resuming(self, topic: str) -> Ending:
        return Ending(self.log, "resume", topic=topic)

    # receiving

    def receiving(self, topics: Sequence[str], *, limit: int = 1, lease: Duration = "30s") -> Receiving:
        return Receiving(self.log, "receive", topics=list(topics), limit=limit, lease=duration_ms(lease))

    def listening(self, topics: Sequence[str], *, lease: Duration = "15s") -> Receiving:
        """Around a listen or a worker: what it hands out is `delivered`; what it prefetches nobody may ever see."""
        return Receiving(self.log, "listen", topics=list(topics), lease=duration_ms(lease))

    def delivered(self, delivery: Delivery | AsyncDelivery, *, lease: Duration) -> None:
        """A delivery that came by a way that is not written down."""
        write_delivered(self.log, delivery, duration_ms(lease))

    def ending(self, verb: str, delivery: Delivery | AsyncDelivery, *, delay: Duration | None = None) -> Ending:
        """`verb`: ack, retry, release or bury."""
        return Ending(self.log, verb, **held(delivery), delay=None if delay is None else duration_ms(delay))

    def extending(self, delivery: Delivery | AsyncDelivery, lease: Duration) -> Ending:
        return Ending(self.log, "extend", **held(delivery), lease=duration_ms(lease))

    def handling(self, delivery: Delivery | AsyncDelivery) -> Handling:
        """In a worker's handler, around all that it does. The worker's queue has to be recorded by `record_engine`."""
        return Handling(self.log, "handle", **held(delivery))

    # what an engine is asked

    def claiming(self, topics: Sequence[str], *, limit: int, lease: int) -> Claiming:
        return Claiming(self.log, topics=list(topics), limit=limit, lease=lease)

    def claimed_again(self, claim: Claim) -> None:
        """What a claim of a dead process holds; nothing is handed out by that, and no lease begins anew."""
        for each in claim.messages:
            write_claimed(self.log, each, claim.now, 0, again=True)

    def settling(self, ends: Sequence[End]) -> Each[Ended]:
        return Each(
            [
                Ending(self.log, ENDS[end.verdict], id=end.id, topic=end.topic, token=end.token, delay=end.delay or None)
                for end in ends
            ]
        )

    def extending_many(self, holds: Sequence[Hold], *, lease: int) -> Each[bool]:
        return Each([Ending(self.log, "extend", id=each.id, topic=each.topic, token=each.token, lease=lease) for each in holds])

    # about the run

    def fault(self, kind: str, what: str = "") -> Fault:
        """A fault that is about to be made. A kind of which none has landed makes the verdict unknown.

        The checker knows one kind: a `rollback` begins when what is accepted may be forgotten, and has landed when the
        server is back in that state.
        """
        return Fault(self.log, kind, what)

    def left(self, messages: Iterable[Info], stats: Stats, *, drained: bool = True) -> None:
        """All that the queue holds in the end, and its counts. `drained`: nothing that is due should be among it."""
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

    def __enter__(self) -> "History":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def stored(info: Info) -> dict[str, object]:
    """The fields of a record about a message that is left."""
    return {
        "id": info.id,
        "topic": info.topic,
        "key": info.key,
        "tag": tag_of(info.body),
        "body": digest(info.body),
        "headers": digest(info.headers),
        "due": info.due,
        "attempt": info.attempt,
        "state": info.state,
    }
