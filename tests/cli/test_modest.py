"""Commands on an engine that tells nothing of what is pending, but of its dead letters. They run in this process."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from bide import Queue
from bide.cli.app import app, run
from bide.cli.exits import Exit

ABLE = "These engines can: sqlite://, redis://, postgres:// and memory://."


@pytest.fixture
def queue(modest_url: str) -> Iterator[Queue]:
    with Queue(modest_url) as queue:
        yield queue


@pytest.fixture
def command(modest_url: str, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Runs a command. Returns its exit code, and what it wrote."""

    def command(*arguments: str) -> tuple[int, str, str]:
        code = run([*arguments, "--url", modest_url])
        wrote = capsys.readouterr()
        return code, wrote.out, wrote.err

    return command


def bury(queue: Queue, *bodies: int, error: str = "no such order") -> list[str]:
    queue.send_many("t", bodies)
    deliveries = queue.receive("t", limit=len(bodies))
    for each in deliveries:
        each.bury(error)
    return [each.id for each in deliveries]


def test_dead_letters_are_listed(queue: Queue, command: Callable[..., tuple[int, str, str]]) -> None:
    ids = bury(queue, 1, 2)
    code, out, _ = command("dead", "t", "--json")
    assert (code, [json.loads(line)["id"] for line in out.splitlines()]) == (Exit.OK, ids)
    code, out, _ = command("list", "t", "--state", "dead", "--json")
    assert (code, [json.loads(line)["id"] for line in out.splitlines()]) == (Exit.OK, ids)
    for arguments in (["dead"], ["dead", "t*"], ["requeue", "*", "--all"], ["purge", "*", "--state", "dead", "--yes"]):
        code, _, err = command(*arguments)
        assert (code, err.splitlines()[0]) == (
            Exit.USAGE,
            f"bide {arguments[0]}: modest:// can't list topics. Give the name of one, without *.",
        )


def test_dead_letters_are_requeued(queue: Queue, command: Callable[..., tuple[int, str, str]]) -> None:
    first, _, _, _ = bury(queue, 1, 2, 3, 4)
    bury(queue, 5, error="TimeoutError")
    code, out, _ = command("requeue", "t", first, "gone", "--dry-run", "--json")
    assert (code, json.loads(out)["found"], json.loads(out)["first"][0]["id"]) == (Exit.OK, 1, first)
    code, out, _ = command("requeue", "t", first, "gone")
    assert (code, out) == (Exit.GONE, "Requeued 1 of 2 dead letters of t. 1 message had moved or ended before.\n")
    code, out, _ = command("requeue", "t", "--all", "--error", "Timeout")
    assert (code, out) == (Exit.OK, "Requeued 1 of 1 dead letter of t.\n")
    code, out, _ = command("requeue", "t", "--all", "--spread", "1s", "--delay", "10m")
    assert (code, out) == (Exit.OK, "Requeued 3 of 3 dead letters of t.\n")
    assert command("requeue", "t", "--all")[:2] == (Exit.OK, "t has no dead letters.\n")
    assert sorted(each.body for each in queue.receive("t", limit=10)) == [1, 5]


def test_dead_letters_are_deleted(queue: Queue, command: Callable[..., tuple[int, str, str]]) -> None:
    first, *_ = bury(queue, 1, 2, 3)
    code, out, _ = command("purge", "t", first, "--yes")
    assert (code, out) == (Exit.OK, "Deleted 1 dead letter of t.\n")
    code, out, _ = command("purge", "t", "--state", "dead", "--yes")
    assert (code, out) == (Exit.OK, "Deleted 2 dead letters of t.\n")


def test_the_question_tells_how_many(
    queue: Queue, command: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    bury(queue, 1, 2, 3)

    class Terminal:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            return "n\n"

    monkeypatch.setattr("sys.stdin", Terminal())
    code, out, err = command("purge", "t", "--state", "dead")
    assert (code, out) == (Exit.FAILED, "")
    assert "Permanently delete 3 dead letters of t? [y/N] " in err
    assert len(queue.messages("t", state="dead")) == 3


REFUSED = (
    (["stats"], "list topics or count messages"),
    (["stats", "t"], "list topics or count messages"),
    (["topics"], "list topics or count messages"),
    (["timeline", "t"], "tell how many messages fall due at which time"),
    (["list", "t"], "list or purge messages that are not dead letters"),
    (["purge", "t", "--state", "ready", "--yes"], "list or purge messages that are not dead letters"),
    (["cancel", "t", "--all", "--yes"], "list or purge messages that are not dead letters"),
    (["cancel", "00000000002a1f3c"], "cancel or reschedule messages"),
    (["cancel", "t", "--key", "k"], "cancel or reschedule messages"),
    (["reschedule", "00000000002a1f3c", "--delay", "1m"], "cancel or reschedule messages"),
    (["show", "00000000002a1f3c"], "look messages up"),
    (["pause", "t"], "pause topics"),
    (["resume", "t"], "pause topics"),
    (["watch", "--once"], "count messages, so there is nothing to watch"),
    (["watch", "t", "--json"], "count messages, so there is nothing to watch"),
    (["schedules"], "keep schedules: leave out @queue.every"),
    (["schedules", "pause", "s"], "keep schedules: leave out @queue.every"),
    (["workers"], "keep what workers tell of themselves"),
    (
        ["metrics"],
        "count messages, so there are no metrics of the queue. `bide worker --metrics` and ProcessMetrics tell what workers do",
    ),
)


@pytest.mark.parametrize(("arguments", "what"), REFUSED)
def test_what_it_can_not_do_is_said_in_a_sentence(
    queue: Queue, command: Callable[..., tuple[int, str, str]], arguments: list[str], what: str
) -> None:
    queue.send("t", 1)
    assert command(*arguments) == (Exit.FAILED, "", f"bide: modest:// can't {what}. {ABLE}\n")
    assert [each.body for each in queue.receive("t")] == [1]


def test_the_help_of_these_commands_and_options_names_the_engine_that_lacks_them() -> None:
    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    named = {name for name, each in commands.items() if re.search(r"^(Not o|O)n RabbitMQ\b", each.help, re.MULTILINE)}
    assert named == {arguments[0] for arguments, _ in REFUSED} | {"dead", "requeue"}
    options = {each.name for each in commands["send"].params if (each.help or "").endswith(" Not on RabbitMQ.")}
    assert options == {"key", "if_exists", "max_wait", "unique_for", "priority", "operation"}


def test_messages_are_sent(queue: Queue, command: Callable[..., tuple[int, str, str]]) -> None:
    assert command("send", "t", "1")[0] == Exit.OK
    code, _, err = command("send", "t", "1", "--key", "k")
    assert (code, err) == (Exit.FAILED, f"bide: modest:// has no keys: leave key= and if_exists= out. {ABLE}\n")
    assert [each.body for each in queue.receive("t", limit=5)] == [1]


def test_the_doctor_has_a_look(command: Callable[..., tuple[int, str, str]]) -> None:
    assert command("doctor")[0] == Exit.OK


def test_listed_messages_are_sent(queue: Queue, command: Callable[..., tuple[int, str, str]], tmp_path: Path) -> None:
    bury(queue, 1, 2)
    _, lines, _ = command("dead", "t", "--json")
    file = tmp_path / "lines"
    file.write_text(lines + json.dumps(json.loads(lines.splitlines()[0]) | {"key": "k"}))
    code, out, err = command("send", "--from", str(file), "--dead")
    assert (code, out) == (Exit.FAILED, "")
    assert err.splitlines() == [
        f"bide: modest:// has no keys: leave key= and if_exists= out. {ABLE}",
        "Accepted before the error: 0 messages. To send the rest, run this, with the OPTIONS of this one: "
        f"sed -n '1,$p' {file} | bide send --from - OPTIONS",
    ]
    file.write_text(lines)
    code, out, _ = command("send", "--from", str(file), "--dead")
    assert (code, out.splitlines()[0]) == (Exit.OK, "Sent 2 messages to 1 topic.")
    assert sorted(each.body for each in queue.receive("t", limit=5)) == [1, 2]
    code, _, err = command("send", "--from", str(file), "--dead", "--operation", "o")
    assert (code, err.splitlines()[0]) == (
        Exit.FAILED,
        f"bide: modest:// does not remember operations: leave operation= out. {ABLE}",
    )
