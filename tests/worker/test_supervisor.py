"""`bide worker --processes N`: the dead are replaced, what they held is given back, and all end together."""

import os
import shutil
import signal
import sqlite3
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from bide import Outgoing
from tests.worker.processes import Running, Shop, alive, open_shop, until

MARGIN = 3.0  # seconds more than is promised, for a machine that is busy with something else

HANDLERS = """
@queue.task("wait", backoff=SOON)
async def wait():
    say("wait", current().attempt)
    while not gone("go"):
        await asyncio.sleep(0.01)
    say("done")

@queue.task("fatal", backoff=SOON)
async def fatal():
    say("fatal", current().attempt)
    os._exit(3)

@queue.task("freeze")
async def freeze(ms):
    say("freeze", current().attempt)
    ctypes.PyDLL(None).usleep(ms * 1000)  # nothing else of Python runs meanwhile
    say("done")

@queue.task("block")
async def block():
    say("block")
    time.sleep(1000)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as made:
        made.write(HANDLERS)
        yield made


def children(worker: Running, count: int) -> list[int]:
    """Wait until there are so many that can be told to stop."""
    found: list[int] = until(lambda: there if len(there := worker.children()) == count else [], lambda: worker.err)
    return found


def test_there_are_as_many_processes_as_were_asked_for_and_all_work(shop: Shop) -> None:
    shop.queue.send_many("wait", [None] * 12)
    worker = shop.start("--processes", "3", "--topics", "wait", "--concurrency", "4", "--grace", "5s")
    lines = shop.said("wait", 1, count=12)
    assert {line.pid for line in lines} == set(children(worker, 3))
    shop.touch("go")
    shop.said("done", count=12)
    code, _ = worker.stop()
    assert code == 0, worker.err


def test_a_killed_process_is_replaced_and_its_messages_run_again_before_their_leases_end(shop: Shop) -> None:
    worker = shop.start("--processes", "2", "--topics", "wait", "--concurrency", "10", "--lease", "100s", "--grace", "5s")
    children(worker, 2)
    shop.queue.send_many("wait", [None] * 20)
    first = shop.said("wait", 1, count=20)
    victim = first[0].pid
    lost = sum(line.pid == victim for line in first)
    killed = time.monotonic()
    os.kill(victim, signal.SIGKILL)
    again = shop.said("wait", 2, count=lost)
    back = again[lost - 1].at - killed
    print(f"{lost} messages of a killed process ran again after {again[0].at - killed:.2f} to {back:.2f} s")
    assert back < 100
    assert len(children(worker, 2)) == 2
    assert f"process {victim} was killed by signal 9 (SIGKILL)" in worker.err
    assert f"{lost} messages are given back" in worker.err
    shop.touch("go")
    shop.said("done", count=20)
    code, _ = worker.stop()
    assert code == 0, worker.err
    assert len(shop.lines("wait", 2)) == lost
    assert shop.counts("wait").dead == 0


def test_without_a_supervisor_they_are_back_when_the_lease_is_over(shop: Shop) -> None:
    worker = shop.start("--lease", "2s")
    shop.queue.send_many("wait", [None] * 5)
    shop.said("wait", 1, count=5)
    other = shop.start("--lease", "2s", "--grace", "5s")
    other.until("→")
    killed = time.monotonic()
    worker.send(signal.SIGKILL)
    worker.wait()
    again = shop.said("wait", 2, count=5)
    back = again[-1].at - killed
    print(f"without a supervisor, with leases of 2 s: {back:.2f} s")
    assert back < 2 + 5 + MARGIN
    shop.touch("go")
    shop.said("done", count=5)
    assert other.stop()[0] == 0


def test_a_process_with_a_blocked_loop_ends_after_its_supervisor_was_killed_and_costs_no_attempt(shop: Shop) -> None:
    sent = shop.queue.send("block", max_attempts=1)
    worker = shop.start("--processes", "1", "--lease", "100s", "--grace", "100ms")
    shop.said("block")
    left = children(worker, 1)
    worker.send(signal.SIGKILL)
    assert worker.process.wait() == -signal.SIGKILL
    until(lambda: not any(map(alive, left)))
    info = shop.queue.get(sent)
    assert info is not None
    assert (info.state, info.attempt) == ("ready", 0)


def test_processes_whose_supervisor_was_killed_stop_by_themselves(shop: Shop) -> None:
    shop.queue.send_many("wait", [None] * 4)
    worker = shop.start("--processes", "2", "--topics", "wait", "--concurrency", "2", "--grace", "5s")
    shop.said("wait", 1, count=4)
    left = children(worker, 2)
    worker.send(signal.SIGKILL)
    assert worker.process.wait() == -signal.SIGKILL
    shop.touch("go")
    until(lambda: not any(map(alive, left)))
    assert len(shop.lines("done")) == 4
    assert shop.counts("wait").leased == 0


def test_two_signals_end_them_all_at_once(shop: Shop) -> None:
    shop.queue.send_many("block", [None] * 2)
    worker = shop.start("--processes", "2", "--concurrency", "1", "--grace", "100s")
    shop.said("block", count=2)
    children(worker, 2)
    code, took = worker.insist()
    assert code == -signal.SIGTERM
    print(f"two signals: {took:.2f} s")
    assert took < MARGIN


def test_a_signal_to_each_process_at_once_is_graceful(shop: Shop) -> None:
    shop.queue.send_many("wait", [None] * 10)
    worker = shop.start("--processes", "2", "--topics", "wait", "--concurrency", "5", "--grace", "10s")
    shop.said("wait", 1, count=10)
    for _ in range(2):
        for pid in children(worker, 2):
            os.kill(pid, signal.SIGTERM)
    worker.send()
    time.sleep(0.1)  # so that whoever is not graceful shows it
    shop.touch("go")
    assert worker.wait() == 0, worker.err
    assert len(shop.lines("done")) == 10
    assert len(shop.lines("wait")) == 10
    assert "replaced" not in worker.err


def test_a_process_that_was_being_started_at_the_signal_ends_too_and_costs_no_attempt(shop: Shop) -> None:
    sent = shop.queue.send("wait", max_attempts=1)
    worker = shop.start("--processes", "4", "--grace", "1s")
    until(lambda: len(worker.children()) >= 1, lambda: worker.err)  # the first; the others are on their way
    code, took = worker.stop()
    assert code == 0, worker.err
    assert took < 1 + MARGIN
    info = shop.queue.get(sent)
    assert info is not None
    assert (info.state, info.attempt) == ("ready", 0)


HANGS = """
if "--lifeline" in sys.argv:
    say("importing")
    time.sleep(1000)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_processes_whose_modules_hang_while_they_are_imported_end_with_their_supervisor(shop: Shop, number: int) -> None:
    shop.write(HANDLERS + HANGS)
    worker = shop.start("--processes", "2", "--grace", "1000s")
    shop.said("importing", count=2)
    code, _ = worker.stop(number)
    assert code == (0 if number == signal.SIGTERM else -number)


def test_processes_that_cannot_begin_end_it_all_with_a_clear_line(shop: Shop) -> None:
    shop.write(HANDLERS + "\nif '--lifeline' in sys.orig_argv: raise RuntimeError('no licence')\n")
    worker = shop.start("--processes", "2")
    assert worker.wait() == 1
    assert "RuntimeError: no licence" in worker.err
    assert "ended with exit code 1 before it began to work: giving up" in worker.err


def test_they_end_it_with_1_whatever_they_end_with(shop: Shop) -> None:
    shop.write(HANDLERS + "\nif '--lifeline' in sys.orig_argv: os._exit(7)\n")
    assert shop.start("--processes", "1").wait() == 1


def test_one_that_cannot_begin_ends_nothing_when_others_have_begun(shop: Shop) -> None:
    shop.write(HANDLERS + "\nif gone('broken') and '--lifeline' in sys.orig_argv: raise RuntimeError('half a deploy')\n")
    worker = shop.start("--processes", "2", "--topics", "wait", "--concurrency", "2", "--grace", "5s")
    shop.queue.send_many("wait", [None] * 4)
    [victim, other] = {line.pid for line in shop.said("wait", 1, count=4)}
    shop.touch("broken")
    os.kill(victim, signal.SIGKILL)
    worker.until("ended with exit code 1")
    worker.until("is replaced in 0.4 s")  # it is tried again, and more slowly
    assert other in worker.children()
    assert "giving up" not in worker.err
    (shop.folder / "broken").unlink()
    shop.said("wait", 2, count=2)
    shop.touch("go")
    shop.said("done", count=4)
    assert worker.stop()[0] == 0


@pytest.mark.parametrize("ends", ["os._exit(5)", "sys.exit(5)", "os._exit(0)"])
def test_processes_that_end_before_they_begin_are_no_request_to_be_replaced_at_once(shop: Shop, ends: str) -> None:
    shop.write(HANDLERS + f"\nif gone('broken') and '--lifeline' in sys.orig_argv: {ends}\n")
    worker = shop.start("--processes", "1", "--topics", "wait", "--grace", "5s")
    shop.queue.send("wait")
    [victim] = {line.pid for line in shop.said("wait")}
    shop.touch("broken")
    os.kill(victim, signal.SIGKILL)
    worker.until("is replaced in 0.8 s")
    assert "asked to be replaced" not in worker.err
    assert worker.stop()[0] == 0


def test_a_process_that_ends_with_0_before_it_begins_could_not_start(shop: Shop) -> None:
    shop.write(HANDLERS + "\nif '--lifeline' in sys.orig_argv: os._exit(0)\n")
    worker = shop.start("--processes", "1")
    assert worker.wait() == 1
    assert "ended with exit code 0 before it began to work: giving up" in worker.err


# The supervisor imports the module too: there, what it needs for a second process fails twice.
SHORT_OF = """
if "--lifeline" not in sys.orig_argv:
    import errno
    from bide.worker.claim_log import ClaimLog
    left = [None, OSError(errno.{error}, os.strerror(errno.{error})), OSError(errno.{error}, os.strerror(errno.{error})), None]
    whole = {what}

    def fails(*arguments, **options):
        if sys._getframe(1).f_globals["__name__"] != "bide.worker.supervisor":
            return whole(*arguments, **options)
        open_files.append(len(os.listdir("/proc/self/fd")))
        if error := left.pop(0):
            raise error
        say("open", open_files)
        return whole(*arguments, **options)

    open_files = []
    {what} = fails
"""


@pytest.mark.parametrize(
    ("what", "error"), [("asyncio.create_subprocess_exec", "EAGAIN"), ("os.pipe", "EMFILE"), ("ClaimLog.new", "ENOSPC")]
)
def test_a_process_that_cannot_be_started_for_want_of_something_is_tried_again(shop: Shop, what: str, error: str) -> None:
    shop.write(HANDLERS + SHORT_OF.format(what=what, error=error))
    worker = shop.start("--processes", "1", "--topics", "wait", "--lease", "100s", "--grace", "5s")
    shop.queue.send("wait")
    [line] = shop.said("wait", 1)
    os.kill(line.pid, signal.SIGKILL)
    shop.said("wait", 2)
    assert worker.err.count("A worker process can't be started, which is tried again in") == 2
    [_, first, second, third] = shop.said("open", count=2)[1].words[1]
    assert first == second == third  # open files, each time before it failed
    shop.touch("go")
    shop.said("done")
    assert worker.stop()[0] == 0


def test_a_stop_is_not_held_up_by_what_cannot_be_given_back(shop: Shop) -> None:
    worker = shop.start("--processes", "1", "--topics", "wait", "--lease", "100s", "--grace", "1s")
    shop.queue.send("wait")
    [line] = shop.said("wait", 1)
    until(lambda: worker.children() == [line.pid])
    writer = sqlite3.connect(shop.folder / "shop.db", isolation_level=None)
    writer.execute("begin immediate")  # the file is somebody else's, for longer than anybody waits
    os.kill(line.pid, signal.SIGKILL)
    until(lambda: not worker.children())
    code, took = worker.stop()
    writer.close()
    print(f"stopped while nothing could be given back: {took:.2f} s")
    assert code == 0, worker.err
    assert took < 1 + MARGIN
    assert "did not take back in time what a process held" in worker.err


def test_a_crash_loop_is_slowed_down(shop: Shop) -> None:
    shop.queue.send_many("fatal", [Outgoing(max_attempts=1)] * 4)
    worker = shop.start("--processes", "1", "--topics", "fatal", "--concurrency", "1")
    died = [line.at for line in shop.said("fatal", count=4)]
    gaps = [later - earlier for earlier, later in pairwise(died)]
    assert gaps[2] > 0.8, gaps
    worker.until("is replaced in 0.8 s")
    assert worker.stop()[0] == 0


SLOW_TO_IMPORT = """
if "--lifeline" in sys.orig_argv:
    time.sleep(2.1)
else:
    import bide.worker.supervisor
    bide.worker.supervisor.SHORT = 2.0
"""


def test_a_crash_loop_is_slowed_down_although_each_import_takes_long(shop: Shop) -> None:
    shop.write(HANDLERS + SLOW_TO_IMPORT)
    shop.queue.send_many("fatal", [Outgoing(max_attempts=1)] * 2)
    worker = shop.start("--processes", "1", "--topics", "fatal", "--concurrency", "1")
    worker.until("is replaced in 0.4 s")  # after the second
    assert worker.stop()[0] == 0


def test_a_dead_process_is_replaced_when_the_folder_for_temporary_files_was_removed(shop: Shop, tmp_path: Path) -> None:
    """As cleaners do with what nobody has touched for days."""
    (tmp_path / "temporary").mkdir()
    worker = shop.start("--processes", "1", "--grace", "5s", env={"TMPDIR": str(tmp_path / "temporary")})
    shop.queue.send("wait")
    [line] = shop.said("wait", 1)
    shutil.rmtree(tmp_path / "temporary")
    os.kill(line.pid, signal.SIGKILL)
    shop.touch("go")
    shop.said("wait", 2)
    shop.said("done")
    assert worker.stop()[0] == 0


def test_no_file_is_left_behind(shop: Shop, tmp_path: Path) -> None:
    (tmp_path / "temporary").mkdir()
    worker = shop.start("--processes", "1", env={"TMPDIR": str(tmp_path / "temporary")})
    shop.queue.send("wait")
    shop.said("wait")
    shop.touch("go")
    assert worker.stop()[0] == 0
    assert os.listdir(tmp_path / "temporary") == []


@pytest.mark.always
def test_a_handler_that_keeps_pythons_lock_for_longer_than_its_lease_keeps_its_message(shop: Shop) -> None:
    worker = shop.start("--processes", "2", "--topics", "freeze", "--lease", "1s", "--grace", "5s")
    children(worker, 2)
    for count in (1, 2):
        shop.queue.send("freeze", {"ms": 3_000}, max_attempts=1)
        shop.said("done", count=count)
    shop.empty()
    assert [line.words[1] for line in shop.lines("freeze")] == [1, 1]
    assert shop.counts("freeze").dead == 0
    assert worker.stop()[0] == 0


@pytest.mark.always
def test_a_process_that_is_frozen_for_ten_leases_is_killed_and_what_it_held_given_back(shop: Shop) -> None:
    worker = shop.start("--processes", "2", "--topics", "freeze,wait", "--lease", "200ms", "--grace", "5s")
    first = children(worker, 2)
    shop.queue.send("freeze", {"ms": 900_000}, max_attempts=1)
    [line] = shop.said("freeze", 1)
    worker.until(f"worker process {line.pid} gave no sign of life for 2 s and was killed")
    until(lambda: shop.counts("freeze").dead == 1)
    [dead] = shop.queue.messages("freeze", state="dead")
    assert dead.last_error == f"worker process {line.pid} gave no sign of life for 2 s and was killed"
    until(lambda: len(found := worker.children()) == 2 and line.pid not in found)
    assert set(worker.children()) & set(first)
    shop.touch("go")
    shop.queue.send("wait", {})
    shop.said("done")
    assert worker.stop()[0] == 0
