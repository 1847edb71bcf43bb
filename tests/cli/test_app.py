"""However a command ends: an exit code, and at most a sentence."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bide import OutcomeUnknown, Queue
from bide.cli.exits import Exit
from tests.cli.running import BIDE, TIMEOUT, Bide, plain_environment


def started(folder: Path, *arguments: str) -> "subprocess.Popen[bytes]":
    return subprocess.Popen(
        [*BIDE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=plain_environment(),
    )


def test_the_installed_command_does_a_whole_life(folder: Path) -> None:
    command = str(Path(sys.executable).with_name("bide"))

    def run(*arguments: str) -> str:
        ended = subprocess.run([command, *arguments], capture_output=True, text=True, check=True, env=plain_environment())
        assert ended.stderr == "" or (arguments[0] == "send" and "a new queue was created in" in ended.stderr)
        return ended.stdout

    sent = json.loads(run("send", "order.cancel", '{"order": 42}', "--delay", "15m", "--json"))
    assert sent["id"] in run("list", "order.cancel")
    assert "MOVED" in run("reschedule", sent["id"], "--delay", "20m")
    assert "CANCELLED" in run("cancel", sent["id"])


def test_the_exit_codes_have_names() -> None:
    codes = {"OK": 0, "FAILED": 1, "USAGE": 2, "RUNNING": 3, "GONE": 4, "DEAD": 6, "STOPPED": 130, "CLOSED": 141}
    for name, code in codes.items():
        assert Exit[name] == code
        assert f"{name:<7}  {code} " in str(Exit.__doc__)


def test_a_reader_that_goes_away_ends_a_list_quietly(folder: Path, queue: Queue) -> None:
    queue.send_many("t", ["x" * 100] * 3_000)
    for extra in ([], ["--json"]):
        with started(folder, "list", "t", "--all", *extra) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline()
            process.stdout.close()
            assert process.stderr.read() == b""
            assert process.wait(TIMEOUT) == 141


def test_a_reader_that_was_never_there_is_no_trouble_either(folder: Path, queue: Queue) -> None:
    queue.send("t")
    for arguments in (["list", "t"], ["--help"], ["stats", "--json"]):
        reads, writes = os.pipe()
        os.close(reads)
        ended = subprocess.run(
            [*BIDE, *arguments], stdout=writes, stderr=subprocess.PIPE, check=False, cwd=folder, env=plain_environment()
        )
        os.close(writes)
        assert ended.stderr == b""
        assert ended.returncode == (1 if arguments == ["--help"] else 141)  # typer ends the help itself


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
@pytest.mark.parametrize("arguments", [("list", "t"), ("--help",), ("list", "--help")], ids=" ".join)
def test_a_full_disk_is_said(folder: Path, queue: Queue, arguments: tuple[str, ...]) -> None:
    queue.send("t")
    with open("/dev/full", "wb") as full:
        ended = subprocess.run(
            [*BIDE, *arguments], stdout=full, stderr=subprocess.PIPE, check=False, cwd=folder, env=plain_environment()
        )
    assert (ended.returncode, ended.stderr) == (1, b"bide: No space left on device.\n")


def test_closed_streams_are_no_trouble(folder: Path, queue: Queue) -> None:
    queue.send("t")
    line = f"{sys.executable} -m bide list t <&- >&- 2>&-; echo $?; {sys.executable} -m bide send t - <&- >&-; echo $?"
    ended = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=False, cwd=folder, env=plain_environment())
    assert (ended.stdout, ended.stderr) == ("0\n0\n", "")


def test_ctrl_c_tells_what_was_accepted_and_ends_with_130(folder: Path, queue: Queue) -> None:
    with started(folder, "send", "t", "-", "--json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdin.write(b"1\n" * 1_000)
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(1_000)]
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT) == 130
        told = process.stderr.read().decode()
    assert told.startswith(
        "Stopped. Accepted: 1,000 messages, and possibly some of the next 1,000. To send the rest, of which some"
    )
    assert told.endswith(": sed -n '1001,$p' FILE | bide send t - OPTIONS\n")
    assert queue.stats("t").ready == len({each["id"] for each in answers}) == 1_000


def test_no_arguments_print_the_help_and_end_with_2(bide_process: Bide) -> None:
    ended = bide_process()
    assert (ended.code, ended.err) == (2, "")
    assert "Usage: bide" in ended.out


def test_an_unknown_command_is_said(bide: Bide) -> None:
    ended = bide("snd", "t")
    assert ended.code == 2
    assert ended.err.startswith("bide: No such command 'snd'")
    assert ended.err.endswith("Try: bide --help\n")


def test_a_file_that_is_not_ours_is_said(bide: Bide, folder: Path) -> None:
    (folder / "bide.db").write_bytes(b"not a database, but long enough to look like one" * 100)
    ended = bide("list", "t")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.startswith(f"bide: {folder}/bide.db is damaged or is not an SQLite file")
    assert ended.err.count("\n") == 1


def test_an_unknown_outcome_says_how_to_try_again(bide: Bide, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(self: Queue, *arguments: object, **options: object) -> None:
        raise OutcomeUnknown("The answer did not come.", "op-1")

    monkeypatch.setattr(Queue, "send", lost)
    ended = bide("send", "t")
    assert (ended.code, ended.out) == (1, "")
    assert ended.err == "bide: The answer did not come.\nTo retry without a duplicate, add --operation op-1\n"


def test_the_help_is_quick_as_it_loads_no_queue(folder: Path) -> None:
    code = (
        "import sys; from bide.cli import main; main(['--help']);"
        "print([name for name in ('asyncio', 'bide.queue', 'sqlite3', 'rich.progress', 'rich.live') if name in sys.modules])"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=plain_environment())
    assert ended.stdout.splitlines()[-1] == "[]"
