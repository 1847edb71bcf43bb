"""Options that are written out in several places, for editors, type checkers and other languages, are the same in each."""

import contextlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from bide import AsyncQueue, Queue
from bide.core import send_options
from bide.core.send_options import SendOption
from bide.queue.envelope import Envelope
from bide.queue.tasks.definition import Definition, TaskOptions
from bide.types import OneOptions, Outgoing, SendOptions

ROOT = Path(__file__).resolve().parents[2]
FOREIGN = ROOT / "src/bide/engines"
OF_A_TASK = {"topic", "keep", "batch", "linger"}  # what kind of task it is: they are in the overloads
DEFINITION = "queue/tasks/definition.py"
OF_SENDERS = {"max_body"}  # what a queue in Python knows, other senders are told
OF_LUA = OF_SENDERS | {"format", "shards"}


class Enough(Exception):
    """The options have come as far as a test looks."""


def names(which: Callable[[SendOption], object] = lambda _: True) -> set[str]:
    return {each.name for each in send_options.ALL if which(each)}


def declared(which: Callable[[SendOption], object] = lambda _: True) -> dict[str, tuple[Any, Any]]:
    """Type and default of options of a send, by name."""
    return {each.name: (each.type, each.default) for each in send_options.ALL if which(each)}


def parameters(function: Callable[..., Any]) -> dict[str, tuple[Any, Any]]:
    """Type and default of what a function takes by name."""
    found, hints = inspect.signature(function).parameters.values(), get_type_hints(function)
    return {each.name: (hints[each.name], each.default) for each in found if each.kind is each.KEYWORD_ONLY}


def check(place: str, has: Iterable[str], wanted: Iterable[str], by: str = "core/send_options.py") -> None:
    """Compare the names of options, and say which is missing where."""
    has, wanted = set(has), set(wanted)
    assert not wanted - has, f"{place} lacks {', '.join(sorted(wanted - has))}: see {by}"
    assert not has - wanted, f"{place} has {', '.join(sorted(has - wanted))}: declare it in {by}"


def compare(place: str, has: Mapping[str, Any], wanted: Mapping[str, Any], by: str = "core/send_options.py") -> None:
    """Compare options with what is said of each, and say which differs where."""
    check(place, has, wanted, by)
    for name, said in has.items():
        assert said == wanted[name], f"{place} has {name} as {said}, and {by} as {wanted[name]}"


@pytest.mark.parametrize("queue", [AsyncQueue, Queue])
def test_a_send_takes_the_options_that_are_declared(queue: Any) -> None:
    compare("queue.send", parameters(queue.send), declared())


@pytest.mark.parametrize("queue", [AsyncQueue, Queue])
def test_a_send_in_the_background_takes_those_that_it_can_have(queue: Any) -> None:
    compare("queue.later", parameters(queue.later), declared(lambda each: each.later))


@pytest.mark.parametrize("queue", [AsyncQueue, Queue])
def test_a_send_of_many_takes_those_that_are_the_same_for_all(queue: Any) -> None:
    check("queue.send_many", set(parameters(queue.send_many)) - {"wait"}, names(lambda each: each.many))


def test_each_of_many_messages_takes_those_that_it_can_have() -> None:
    fields = {each: kind for each, kind in get_type_hints(Outgoing).items() if each != "body"}
    defaults = dict(zip(Outgoing.__struct_fields__[1:], Outgoing.__struct_defaults__[1:], strict=True))
    compare("Outgoing", {name: (kind, defaults[name]) for name, kind in fields.items()}, declared(lambda each: each.each))


@pytest.mark.parametrize(
    ("typed", "which"), [(SendOptions, names()), (OneOptions, names(lambda each: each.after))], ids=["options", "after and at"]
)
def test_a_send_of_a_task_takes_them(typed: Any, which: set[str]) -> None:
    compare(typed.__name__, get_type_hints(typed), {name: kind for name, (kind, _) in declared().items() if name in which})
    assert not typed.__required_keys__


@pytest.mark.parametrize("verb", ["send", "later"])
def test_every_option_that_is_given_reaches_the_message(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {name: object() for name in parameters(getattr(Queue, verb))}
    reached: dict[str, Any] = {}

    def message(_: Envelope, topic: str, body: object, **options: Any) -> None:
        reached.update(options)
        raise Enough

    monkeypatch.setattr(Envelope, "message", message)
    with Queue("memory://") as queue, pytest.raises(Enough):
        getattr(queue, verb)("t", **given)
    given.pop("connection", None)  # the session gets this
    compare(f"What queue.{verb} hands on", reached, given)


@pytest.mark.parametrize("name", sorted(send_options.OF_EACH - {"delay"} - send_options.CARRIED.keys()))
def test_every_option_of_one_of_many_reaches_its_message(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reached: dict[str, Any] = {}

    def message(_: Envelope, topic: str, body: object, **options: Any) -> None:
        reached.update(options)
        raise Enough

    monkeypatch.setattr(Envelope, "message", message)
    given: dict[str, Any] = {name: object()}
    with Queue("memory://") as queue, contextlib.suppress(Enough):
        queue.send_many("t", [Outgoing(1, **given)])
    assert reached.get(name) is given[name], f"queue/envelope.py does not hand {name} on, of one of many messages"


@pytest.mark.parametrize("name", ["send", "send_bytes"])
def test_senders_in_sql_take_those_that_are_for_other_languages(name: str) -> None:
    text = (FOREIGN / "postgres/functions/8_send.sql").read_text(encoding="utf-8")
    [listed] = re.findall(rf"create or replace function bide\.{name}\((.*?)\) ", text, re.DOTALL)
    has = {each.split()[0] for each in listed.split(",") if "default" in each} - {"body"} - OF_SENDERS
    check(f"8_send.sql, {name}", has, names(lambda each: each.foreign))


def test_the_sender_in_lua_takes_those_that_are_for_other_languages() -> None:
    wanted = names(lambda each: each.foreign) | OF_LUA
    scripts = FOREIGN / "redis/scripts/foreign"
    content = (scripts / "content.lua").read_text(encoding="utf-8")
    [table] = re.findall(r"local OPTIONS = {.*?\n(.*?)\n}", content, re.DOTALL)
    check("content.lua, OPTIONS", re.findall(r"(\w+) = true", table), wanted)
    [listed] = re.findall(r"local LISTED = '(.*)'", content)
    check("content.lua, LISTED", listed.split(", "), wanted)
    first = (scripts / "send.lua").read_text(encoding="utf-8").replace("\n-- ", " ")
    [head] = re.findall(r" ARGV: topic, body, and then options, each a name and a value: (.*?)\. ", first)
    check("send.lua, its first lines", re.split(", | or ", head), wanted)


@pytest.mark.parametrize(
    ("page", "begin", "more"),
    [
        ("docs/languages.md", "| option | value |\n|---|---|\n", OF_LUA),
        ("docs/postgres.md", "The function has these options of [`send`](messages.md): ", OF_SENDERS),
    ],
)
def test_the_pages_on_other_languages_name_them(page: str, begin: str, more: set[str]) -> None:
    _, _, rest = (ROOT / page).read_text(encoding="utf-8").partition(begin)
    lines = rest.partition("\n\n")[0].splitlines()
    told = [line.split("|")[1] if line.startswith("|") else line for line in lines]
    known = names() | more
    check(page, known & set(re.findall(r"`(\w+)`", " ".join(told))), names(lambda each: each.foreign) | more)


def of_tasks() -> dict[str, tuple[Any, Any]]:
    """The options of a task are declared by the signature of its definition."""
    return parameters(Definition.__init__)


@pytest.mark.parametrize("queue", [AsyncQueue, Queue])
def test_a_task_is_defined_with_the_options_that_it_is_given(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    compare("queue.task", parameters(queue.task) | {"topic": (str | None, None)}, of_tasks(), DEFINITION)
    topic, given = "t", {name: object() for name in of_tasks() if name != "topic"}
    reached: dict[str, Any] = {}

    def define(_: Definition, function: Callable[..., Any], **options: Any) -> None:
        reached.update(options)
        raise Enough

    monkeypatch.setattr(Definition, "__init__", define)
    with pytest.raises(Enough):
        queue("memory://").task(topic, **given)(print)
    compare("What queue.task hands on", reached, given | {"topic": topic}, DEFINITION)


def test_editors_are_told_all_options_of_a_task() -> None:
    hints = {name: kind for name, (kind, _) in of_tasks().items() if name not in OF_A_TASK}
    compare("TaskOptions", get_type_hints(TaskOptions), hints, DEFINITION)
    assert not TaskOptions.__required_keys__


def test_the_page_on_tasks_explains_each_option() -> None:
    _, _, table = (
        (ROOT / "docs/tasks.md").read_text(encoding="utf-8").partition("| option | default | meaning |\n|---|---|---|\n")
    )
    first = [line.split("|")[1] for line in table.partition("\n\n")[0].splitlines()]
    check("docs/tasks.md", re.findall(r"\w+", " ".join(first)), of_tasks(), DEFINITION)
