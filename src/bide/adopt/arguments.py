"""The arguments of a task of another system, by name, as the body of a message."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from bide.adopt.shaping import Shape
from bide.adopt.source import Unreadable
from bide.core.formats import plural


class TaskShape(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line says about tasks."""

    topics: Mapping[str, str] = {}  # by the name of the task
    names: Mapping[str, Sequence[str]] = {}  # of its positional arguments, by the name of the task

    def shape(self, task: str, shape: Shape) -> Shape:
        """That of the messages of a task: a task without a topic has its name as its topic."""
        return msgspec.structs.replace(shape, topic=self.topics.get(task) or shape.topic or task)

    def body(self, task: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bytes:
        """A JSON object of all arguments. Values may be msgspec.Raw. Raises Unreadable."""
        names = self.names.get(task, ())
        if len(args) > len(names):
            raise Unreadable(f"has {plural(len(args), 'argument')} without a name: give --args {task}=NAME,…")
        if twice := [name for name in names[: len(args)] if name in kwargs]:
            raise Unreadable(f"has the argument {twice[0]} twice: correct --args {task}=…")
        try:
            return msgspec.json.encode({**dict(zip(names, args, strict=False)), **kwargs})
        except (TypeError, ValueError, OverflowError, RecursionError):
            raise Unreadable("has arguments that JSON can't express") from None


def read_maps(given: Sequence[str]) -> dict[str, str]:
    """`TASK=TOPIC`, repeated. Raises ValueError with the text that is no such pair."""
    pairs = [each.partition("=") for each in given]
    for (task, equals, value), text in zip(pairs, given, strict=True):
        if not (task and equals and value):
            raise ValueError(text)
    return {task: value for task, _, value in pairs}


def read_names(given: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """`TASK=NAME,NAME`, repeated. Raises ValueError with the text that is none."""
    names = {task: tuple(each.strip() for each in value.split(",")) for task, value in read_maps(given).items()}
    for task, each in names.items():
        if "" in each or len(set(each)) < len(each):
            raise ValueError(f"{task}={','.join(each)}")
    return names
