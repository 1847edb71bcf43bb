"""`bide send`: one message."""

from bide.cli.exits import Exit
from bide.cli.output import fields
from bide.cli.output.out import say, say_json
from bide.cli.output.times import due, now_ms
from bide.cli.place import Place
from bide.types import Outgoing, Sent

_OUTCOMES = {
    "created": "",
    "kept": "kept as it was, as it has this key: ",
    "replaced": "has this key, and got the new body and time: ",
    "postponed": "has this key, and got the new body and the later time: ",
}


def run(place: Place, topic: str, message: Outgoing, operation: str | None, *, as_json: bool = False) -> int:
    with place.queue(make=True) as queue:
        sent = queue.send(
            topic,
            message.body,
            delay=message.delay,
            at=message.at,
            key=message.key,
            if_exists=message.if_exists,
            priority=message.priority,
            expires_in=message.expires_in,
            max_attempts=message.max_attempts,
            headers=message.headers,
            operation=operation,
        )
    if as_json:
        say_json(fields.sent(sent))
    else:
        say(told(sent))
    return Exit.OK


def told(sent: Sent) -> str:
    return f"{sent.id}  {_OUTCOMES.get(sent.outcome, sent.outcome + ': ')}due {due(sent.due, now_ms())}"
