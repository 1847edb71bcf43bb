"""What the store keeps of a message and of a claim.

Both are Structs that the garbage collector does not visit: a million of them would slow everything down. So they
must never be part of a reference cycle, and name each other by id.
"""

import msgspec

from bide.engines.base import Claimed, NewMessage, Stored
from bide.types import State

PENDING, LEASED, DEAD, ENDED = range(4)


class HeldClaim(msgspec.Struct, gc=False):
    """One claim, with the messages that it delivered."""

    token: str
    request: str | None
    ids: list[str]
    live: int  # of them, how many are still held


class Message(msgspec.Struct, gc=False):
    id: str
    content: NewMessage
    due: int
    since: int  # its due time before retry or release moved it: its expiry counts from it
    key: str | None
    entry: int  # of its entries in the topic's heaps, the one that counts; also the order of sending
    stage: int = PENDING
    attempt: int = 0
    claim: HeldClaim | None = None  # while leased
    lease_until: int | None = None
    last_error: str | None = None
    died: int = 0

    def claimed(self, token: str) -> Claimed:
        content = self.content
        return Claimed(
            self.id, content.topic, content.body, content.headers, self.key, self.due, self.since, self.attempt,
            content.max_attempts, token,
        )  # fmt: skip

    @property
    def expires(self) -> int | None:
        life = self.content.expires_in
        return None if life is None else self.since + life

    def expired(self, now: int) -> bool:
        life = self.content.expires_in
        return life is not None and self.since + life <= now

    def state(self, now: int) -> State:
        if self.stage == LEASED:
            return "leased"
        if self.stage == DEAD:
            return "dead"
        return "ready" if self.due <= now else "scheduled"

    def stored(self, now: int) -> Stored:
        content = self.content
        return Stored(
            id=self.id,
            topic=content.topic,
            state=self.state(now),
            due=self.due,
            attempt=self.attempt,
            max_attempts=content.max_attempts,
            key=self.key,
            level=content.level,
            body=content.body,
            headers=content.headers,
            last_error=self.last_error,
            lease_until=self.lease_until,
            expires=self.expires,
        )
