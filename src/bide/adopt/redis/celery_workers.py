"""Celery's workers that are alive: who they are, and how they are told to drop tasks that they have in their memory.

It is Celery's own remote control. A worker listens on a channel, and answers into a list that the one who asks has bound.
"""

import base64
import time
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec

from bide.adopt.redis.server import SourceServer, beside
from bide.errors import BideError, Unavailable

SEPARATOR = "\x06\x16"
NOTED = 30 * 86_400  # seconds
PATIENCE = 20.0  # seconds in which every worker answers a ping


class Question(NamedTuple):
    """A question to all workers: how an envelope begins and ends around its body, and the ticket of the answers."""

    before: str
    after: str
    ticket: str


class Workers:
    """`control`: Celery's setting control_exchange. `prefix`: the transport option global_keyprefix."""

    def __init__(self, server: SourceServer, *, control: str = "celery", prefix: str = "") -> None:
        self._server = server
        self._prefix = prefix
        self._exchange: str = f"reply.{control}.pidbox"
        self._to: str = f"{control}.pidbox"
        self.channel: str = f"{prefix}/{server.database}.{control}.pidbox"
        self._me: str = str(uuid4())
        self._answers: str = f"{prefix}{self._me}.{self._exchange}"
        self._bindings: str = f"{prefix}_kombu.binding.{self._exchange}"
        self._binding: str = SEPARATOR.join((self._me, "", f"{self._me}.{self._exchange}"))
        self._bound: bool = False
        self._noted: str = beside(f"{prefix}unacked", "bide-adopt-revoked")
        self._ahead: int | None = None  # of this machine's clock, the server's
        self._asked: int = 0

    def question(self) -> Question:
        """What goes around the body of a question. The body is text within JSON."""
        ticket = str(uuid4())
        properties = {
            "delivery_mode": 2,
            "delivery_info": {"exchange": self._to, "routing_key": ""},
            "priority": 0,
            "body_encoding": None,
            "delivery_tag": ticket,
        }
        rest = {"content-encoding": "utf-8", "content-type": "application/json", "headers": {"clock": 1, "expires": 0}}
        end = msgspec.json.encode({**rest, "properties": properties}).decode()
        return Question('{"body": ', f", {end[1:]}", ticket)

    def body(self, method: str, arguments: str, asked: Question) -> str:
        """The body of a question. `arguments`: as JSON. Without a ticket nobody answers."""
        reply = f'{{"exchange": "{self._exchange}", "routing_key": "{self._me}"}}' if asked.ticket else "null"
        return (
            f'{{"method": "{method}", "arguments": {arguments}, "destination": null, "pattern": null, "matcher": null, '
            f'"ticket": "{asked.ticket}", "reply_to": {reply}}}'
        )

    def bind(self) -> None:
        """Let workers find the list that they answer into."""
        if not self._bound:
            self._server.call("SADD", self._bindings, self._binding)
            self._bound = True

    def ping(self) -> int:
        """How many workers are alive. Raises Unavailable if one of them does not answer."""
        found = self.ask("ping", "{}", PATIENCE)
        return len(found)

    def ask(self, method: str, arguments: str, patience: float) -> list[Any]:
        """The answers of all workers. Raises Unavailable if one of them does not answer."""
        self.bind()
        asked = self.question()
        body = msgspec.json.encode(self.body(method, arguments, asked)).decode()
        heard = int(self._server.call("PUBLISH", self.channel, f"{asked.before}{body}{asked.after}"))
        return self.answers(asked.ticket, heard, patience)

    def answers(self, ticket: str, number: int, patience: float, *, held: bool = False) -> list[Any]:
        """So many answers to a question. Raises Unavailable if they do not come in time."""
        found: list[Any] = []
        until = time.monotonic() + patience
        while len(found) < number:
            if time.monotonic() > until:
                rest = "What was taken is held: s" if held else "S"
                raise Unavailable(
                    f"Of {number} Celery workers that listen, {len(found)} answered within {patience:.0f} seconds. {rest}top "
                    "those that do not answer, or wait until they are less busy, and run the command again."
                )
            popped = self._server.call("BRPOP", self._answers, 1)
            if popped is None:
                continue
            answer = msgspec.json.decode(popped[1])
            if answer.get("headers", {}).get("ticket") == ticket:
                found.append(_answer(answer))
        return found

    def revoked(self) -> list[frozenset[str]]:
        """The ids of revoked tasks that each of the workers remembers."""
        return [frozenset(map(str, each)) for each in self.ask("revoked", "{}", PATIENCE) if isinstance(each, list)]

    def note_as_revoked(self, id: str) -> None:
        """Remember it beside the source, since workers forget what was revoked when they are stopped."""
        self._server.call("SADD", self._noted, id)
        self._server.call("EXPIRE", self._noted, NOTED)

    def noted_as_revoked(self) -> frozenset[str]:
        """Ids of tasks of which earlier runs noted that they were revoked."""
        return frozenset(each.decode(errors="replace") for each in self._server.call("SMEMBERS", self._noted))

    def waiting(self) -> int:
        """How many clients wait for tasks with BRPOP in this database, as workers do. 0 if this user may not ask."""
        try:
            lines = bytes(self._server.call("CLIENT", "LIST")).decode(errors="replace").splitlines()
        except BideError:
            return 0
        here = f" db={self._server.database} "
        return sum(here in line and " cmd=brpop " in line for line in lines)

    def now(self) -> int:
        """The server's time, in ms."""
        seconds, micros = self._server.call("TIME")
        return int(seconds) * 1000 + int(micros) // 1000

    def now_here(self) -> int:
        """The same without asking: by this machine's clock, and how far it was off when it was asked last."""
        here = time.time_ns() // 1_000_000
        if self._ahead is None or here > self._asked + 60_000:
            self._ahead = self.now() - here
            self._asked = here
        return here + self._ahead

    def close(self) -> None:
        """Remove the list of answers."""
        if self._bound:
            self._server.call("SREM", self._bindings, self._binding)
            self._server.call("DEL", self._answers)
            self._bound = False


def _answer(envelope: Any) -> Any:
    """What one worker answers, without its name."""
    body = envelope["body"]
    text = base64.b64decode(body) if envelope["properties"].get("body_encoding") == "base64" else body
    answers: dict[str, Any] = msgspec.json.decode(text)
    return next(iter(answers.values()))
