"""Each command says what it is for, what its options mean, and shows how it is used; and the examples are right."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from bide import Queue
from bide.cli.app import app
from tests.cli.running import Bide, buried
from tests.servers.rabbitmq import RabbitServer

COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
COMMANDS |= {f"adopt {name}": each for name, each in COMMANDS["adopt"].commands.items()}
WANTED = {
    "send", "list", "show", "cancel", "reschedule", "stats", "topics", "timeline", "dead", "requeue", "purge", "pause",
    "resume", "demo", "doctor",
}  # fmt: skip
WITH_RABBITMQ = {"doctor"}  # those with examples that name a broker


def examples(name: str) -> Iterator[str]:
    for line in COMMANDS[name].epilog.split("\n"):
        found = re.fullmatch(r"  (\S.*?)(   .*)?", line)
        if found:
            yield found[1].replace(r"\[", "[")


def test_every_command_is_there() -> None:
    assert COMMANDS.keys() >= WANTED


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_what_it_does_in_a_sentence_and_shows_examples(name: str) -> None:
    command = COMMANDS[name]
    first = command.help.split("\n\n")[0]
    assert re.fullmatch(r"[A-Z].{10,140}\.", first)
    assert any(example.startswith(f"bide {name}") for example in examples(name))


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_described(name: str) -> None:
    for each in COMMANDS[name].params:
        if getattr(each, "hidden", False):
            continue
        assert re.search(r"\S.*", each.help or ""), f"{name} {each.name}"


@pytest.mark.parametrize("name", sorted(WANTED))
def test_help_shows_the_examples_at_eighty_columns(bide: Bide, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ended = bide(name, "--help")
    assert (ended.code, ended.err) == (0, "")
    for example in examples(name):
        assert example in ended.out


@pytest.mark.parametrize("name", sorted(WANTED - {"demo"}))
def test_the_examples_do_what_they_say(bide: Bide, queue: Queue, folder: Path, name: str) -> None:
    queue.send("order.cancel", {"order": 42}, key="order:42", delay="1h")
    buried(queue, "order.pack")
    (folder / "carts.jsonl").write_text("1\n2\n")
    (folder / "all.jsonl").write_text(bide("list", "--all", "--json").out)
    for example in examples(name):
        if "amqp:" in example:
            assert name in WITH_RABBITMQ
            continue
        arguments = shlex.split(example.rpartition("| ")[2])
        ended = bide(*arguments[1:], stdin="1\n2\n")
        deletes = name == "purge" or (name == "cancel" and "--all" in arguments)
        asks = deletes and not {"--yes", "--dry-run"} & set(arguments)
        unknown = any(re.fullmatch("[0-9a-f]{16}", each) for each in arguments)
        assert ended.code == (2 if asks else 1 if unknown and name == "show" else 4 if unknown else 0), ended


@pytest.mark.server
@pytest.mark.parametrize("name", sorted(WITH_RABBITMQ))
def test_the_examples_with_rabbitmq_do_what_they_say(
    bide: Bide, rabbitmq_server: RabbitServer, rabbitmq_url: str, name: str
) -> None:
    """With a broker of the tests in place of the one that the example names."""
    with Queue(rabbitmq_url) as queue:
        queue.send("order.cancel", {"order": 42}, delay="1h")
    shown = [example for example in examples(name) if "amqp:" in example]
    assert shown
    for example in shown:
        there = re.sub(r"amqp://[^\s?]*", rabbitmq_url, example)
        arguments = shlex.split(there.replace("http://localhost:15672", rabbitmq_server.management_url))[1:]
        asks = "--remove" in arguments
        ended = bide(*arguments)
        assert ended.code == (2 if asks else 0), ended
        if asks:
            ended = bide(*arguments, "--yes")
            assert ended.code == 0, ended
            assert "with 1 message." in ended.out
