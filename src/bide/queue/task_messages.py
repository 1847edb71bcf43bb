"""From the arguments of a task to its messages: all are tried on the function before the first is sent."""

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import fields, replace

from bide.core.codec import Encoded, decode, encode
from bide.engines.base import NewMessage
from bide.errors import BadBody, BadMessage, BadOption
from bide.queue.envelope import Envelope
from bide.queue.tasks.arguments import Unfit
from bide.queue.tasks.definition import Definition
from bide.queue.topic_rules import shorter
from bide.types import Outgoing, SendOptions

_SAME_FOR_MANY = ("operation", "connection")
_UNSAID = {each.name: each.default for each in fields(Outgoing) if each.name != "body"}


class TaskMessages:
    def __init__(self, definition: Definition, envelope: Envelope) -> None:
        self._definition = definition
        self._envelope = envelope
        self._life = definition.rule.expires_in

    def one(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], options: SendOptions) -> NewMessage:
        body = self._body(args, kwargs, options.get("if_exists"))
        new = self._envelope.message(self._definition.topic, body, **options)
        return new if self._life is None else self._living(new)

    def many(self, arguments: Iterable[Any], options: SendOptions) -> list[NewMessage]:
        items = self._all_outgoing(arguments, options)
        messages = self._envelope.messages(self._definition.topic, items, options.get("operation"))
        return messages if self._life is None else [self._living(each) for each in messages]

    def _living(self, new: NewMessage) -> NewMessage:
        """As long as the task says at most, also on a queue that does not know the task."""
        life = shorter(new.expires_in, self._life)
        return new if life == new.expires_in else replace(new, expires_in=life)

    def _body(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], if_exists: str | None) -> Encoded:
        """The arguments as a message's body, tried on the function as a worker would have it."""
        arguments, envelope = self._definition.arguments, self._envelope
        try:
            raw = encode(envelope.codec, arguments.bind(args, kwargs), envelope.max_body)
            body = decode(envelope.codec, raw, envelope.max_body)
            arguments.read(body)
        except Unfit as error:
            raise BadBody(str(error)) from error.__cause__
        if if_exists == "merge":
            arguments.check_lists(body)
        return Encoded(raw)

    def _all_outgoing(self, arguments: Iterable[Any], options: SendOptions) -> list[Outgoing]:
        if isinstance(arguments, str | bytes | Mapping) or not isinstance(arguments, Iterable):
            each = "the arguments of each by name: [{'order': 42}]" if self._definition.batch is None else "the items"
            raise BadOption(
                f"send_many takes a list, and this is a {type(arguments).__name__}. Give {each}; for one message use send()."
            )
        if options.get("depends_on") is not None:
            raise BadOption("depends_on= is for one message: send each of them with send().")
        own: dict[str, Any] = {name: value for name, value in options.items() if name not in _SAME_FOR_MANY}
        items = []
        for place, each in enumerate(arguments):
            try:
                said = own if not isinstance(each, Outgoing) else _said(each, own)
                body = each.body if isinstance(each, Outgoing) else each
                items.append(Outgoing(self._one_of_many(body, said.get("if_exists")), **said))
            except BadMessage as error:
                raise type(error)(f"Item {place}: {error}") from error
        shared = options.get("key")
        if shared is not None and sum(each.key == shared for each in items) > 1:
            raise BadOption(
                f"A key belongs to one message at a time, and these are {len(items)}. Give each a key of its own: "
                "task.send_many([Outgoing({…}, key=…), …])."
            )
        return items

    def _one_of_many(self, arguments: Any, if_exists: str | None) -> Encoded:
        """The arguments by name, or the item of a batch."""
        if self._definition.batch is not None:
            return self._body((arguments,), {}, if_exists)
        if not isinstance(arguments, Mapping):
            raise BadOption(
                f"send_many takes the arguments of each by name, and this is a {type(arguments).__name__}: [{{'order': 42}}]."
            )
        return self._body((), arguments, if_exists)


def _said(item: Outgoing, own: Mapping[str, Any]) -> dict[str, Any]:
    """The options of an item, and those of the task where it says nothing. One time takes the place of another."""
    said = {name: value for name, unsaid in _UNSAID.items() if (value := getattr(item, name)) != unsaid}
    timed = "delay" in said or "at" in said
    return {name: value for name, value in own.items() if not (timed and name in ("delay", "at"))} | said
