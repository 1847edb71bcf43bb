"""`bide watch`: what sleeps, is due and runs, and who has it."""

import json
import os
import re
import signal
import socket
import time
from pathlib import Path
from typing import Any

import pytest

from bide import Queue
from bide.cli.watch.look import AT_MOST, READ, QueueWatch
from bide.cli.watch.screen import rate
from bide.queue.workers import Process, Work, key, report
from tests.cli.running import AtTerminal, Bide, Terminal
from tests.servers.redis import RedisServer

ME = f"{socket.gethostname().partition('.')[0]}:{os.getpid()}"
CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HOME = "\x1b[H"  # where each frame begins
BEGIN, END = "\x1b[?1049h", "\x1b[?1049l"  # of a screen of its own
SHOWN = "\x1b[?25h"  # the cursor


@pytest.fixture
def busy(queue: Queue) -> Queue:
    """3 due and 2 that run in one topic, 1 that sleeps in another."""
    queue.send_many("mail.out", range(4))
    queue.send("mail.out", 4, key="order:42", priority="high")
    queue.send("report", {}, delay="1h")
    queue.receive("mail.out", limit=2)
    return queue


def frames(terminal: Terminal) -> list[list[str]]:
    """What the screen has shown, as lines of each frame."""
    return [CODES.sub("", each).replace("\r", "").split("\n") for each in terminal.seen.split(HOME)[1:]]


def test_in_a_pipe_it_prints_the_tables_once(bide: Bide, busy: Queue) -> None:
    ended = bide("watch")
    lines = [line.split() for line in ended.out.splitlines()]
    assert lines[0] == ["topic", "scheduled", "ready", "leased", "dead", "overdue", "next", "due"]
    assert lines[1][:5] == ["mail.out", "0", "3", "2", "0"]
    assert lines[2][:5] == ["report", "1", "0", "0", "0"]
    assert lines[4] == ["worker", "runs", "done", "failed", "lateness", "longest", "of", "attempt", "message"]
    assert [lines[5][0], lines[5][1], *lines[5][3:5]] == [ME, "2", "mail.out", "1/3"]
    assert (ended.code, ended.err, len(lines)) == (0, "", 6)


def test_topics_may_be_chosen(bide: Bide, busy: Queue) -> None:
    assert "report" not in bide("watch", "mail.*").out
    assert "mail" not in bide("watch", "report", "--once").out
    assert bide("watch", "x*").err == "There are no topics.\n"


def test_as_json_it_is_an_object_a_look(bide: Bide, busy: Queue) -> None:
    [line] = bide("watch", "--once", "--json").out.splitlines()
    look = json.loads(line)
    assert set(look) == {"at", "at_ms", "topics", "workers", "processes"}
    assert [(each["topic"], each["ready"], each["leased"], each["change"]) for each in look["topics"]] == [
        ("mail.out", 3, 2, None),
        ("report", 0, 0, None),
    ]
    [worker] = look["workers"]
    assert (worker["worker"], worker["topic"], worker["messages"]) == (ME, "mail.out", 2)
    assert look["at_ms"] - 60_000 < worker["since_ms"] <= look["at_ms"]


def told(queue: Queue, topic: str, **running: int) -> None:
    """A worker of another process tells of itself."""
    now = time.time_ns() // 1_000_000
    process = Process("web", 7, "0.2.0", [topic], now - 60_000)
    queue.session.engine().put([report(key(f"web:{topic}"), process, Work(running, 12, 3, [(now, 12, 3, 41_000)]))])


def test_workers_with_nothing_to_do_are_shown_with_what_they_tell(bide: Bide, busy: Queue) -> None:
    told(busy, "report")
    told(busy, "idle", idle=1)
    lines = [line.split() for line in bide("watch").out.splitlines()]
    assert [line[0] for line in lines[5:]] == [ME, "web:idle", "web:report"]
    assert lines[6][1:] == ["1", "12", "3", "41s", "idle"]
    assert lines[7][1:] == ["0", "12", "3", "41s", "report"]
    # and of those topics only that were asked for, also if they hold nothing
    assert [line.split()[0] for line in bide("watch", "idle").out.splitlines() if "web" in line] == ["web:idle"]
    assert [each["worker"] for each in json.loads(bide("watch", "--json", "--once").out)["processes"]] == [
        "web:idle",
        "web:report",
    ]


def test_what_is_in_memory_can_not_be_watched_from_outside(bide: Bide) -> None:
    ended = bide("watch", "--url", "memory://")
    assert ended.code == 1
    assert "this is another process: there is nothing to watch. Call queue.stats() in that process" in ended.err


def test_an_interval_that_is_too_short_is_refused(bide: Bide, queue: Queue) -> None:
    for interval in ("50ms", "0", "soon"):
        assert bide("watch", "--interval", interval).code == 2


def test_at_a_terminal_it_is_drawn_in_place_until_ctrl_c(at_terminal: AtTerminal, busy: Queue) -> None:
    terminal = at_terminal("watch", "--interval", "100ms")
    terminal.until(ME)
    busy.send("later", delay="2h")
    terminal.until("later")
    terminal.until("/s")
    terminal.interrupt()
    ended = terminal.end()
    assert ended.code == 130
    assert terminal.seen.index(BEGIN) < terminal.seen.index(HOME)
    left = terminal.seen.index(END)
    assert SHOWN in terminal.seen[left - 20 :]
    assert CODES.sub("", terminal.seen[left:]).strip() == ""


def test_it_ends_when_its_terminal_has_gone(at_terminal: AtTerminal, busy: Queue) -> None:
    terminal = at_terminal("watch", "--interval", "100ms")
    terminal.until(ME)
    assert terminal.gone() != 0


def test_sigterm_gives_the_terminal_back(at_terminal: AtTerminal, busy: Queue) -> None:
    terminal = at_terminal("watch", "--interval", "100ms")
    terminal.until(ME)
    terminal.terminate()
    assert terminal.end().code == 128 + signal.SIGTERM
    assert SHOWN in terminal.seen[terminal.seen.index(END) - 20 :]


@pytest.mark.parametrize("columns", [20, 40, 79])
def test_on_a_narrow_terminal_no_line_is_broken(at_terminal: AtTerminal, busy: Queue, columns: int) -> None:
    terminal = at_terminal("watch", "--interval", "100ms", columns=columns)
    terminal.until("report")
    terminal.interrupt()
    terminal.end()
    for frame in frames(terminal):
        assert len(frame) <= 24
        assert max(map(len, frame)) <= columns


def test_a_screen_that_is_too_low_says_how_many_topics_are_left_out(at_terminal: AtTerminal, queue: Queue) -> None:
    for number in range(40):
        queue.send(f"t{number:02}", delay="1h")
    queue.send("due")
    terminal = at_terminal("watch", "--interval", "100ms")
    terminal.until("more topics")
    terminal.interrupt()
    terminal.end()
    last = next(frame for frame in frames(terminal) if any("more topics" in line for line in frame))
    assert len(last) <= 24
    shown = [line.split()[0] for line in last[3:] if line.strip() and "more topics" not in line]
    assert shown[0] == "due"  # what is due comes first
    assert f"and {41 - len(shown)} more topics" in "".join(last)


def test_a_queue_that_is_away_is_told_and_watched_again_when_it_is_back(at_terminal: AtTerminal, tmp_path: Path) -> None:
    with RedisServer() as server:
        with Queue(server.url) as queue:
            queue.send("before", delay="1h")
        terminal = at_terminal("watch", "--interval", "100ms", "--url", server.url, columns=200)
        terminal.until("before")
        server.stop()
        terminal.until("Not reached, tried again:")
        terminal.seen = ""
        server.start()
        with Queue(server.url) as queue:
            queue.send("after", delay="1h")
        terminal.until("after")
        terminal.interrupt()
        assert terminal.end().code == 130


class Counted:
    """A queue that counts what it is asked."""

    def __init__(self, queue: Queue) -> None:
        self._queue = queue
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        self.asked.append(name)
        return getattr(self._queue, name)


def test_a_look_asks_for_the_counts_and_for_what_runs_in_a_few_topics(queue: Queue) -> None:
    topics = [f"t{number}" for number in range(3 * READ)]
    for topic in topics:
        queue.send(topic)
        queue.receive(topic)
    looking, counted = QueueWatch(None), Counted(queue)
    asked: Any = counted
    for looks in (1, 2, 3):
        look = looking.look(asked)
        assert len(look.running) == looks * READ  # others in each look, and those of before are kept
        assert look.unread == 3 * READ - looks * READ
    assert sorted(counted.asked) == ["capabilities"] * 3 + ["messages"] * 3 * READ + ["stats"] * 3 + ["workers"] * 3


def test_a_slow_server_is_left_alone_for_nine_tenths_of_the_time(queue: Queue) -> None:
    looking = QueueWatch(None)
    looking._took = 2.0
    assert looking.rest(1.0) == pytest.approx(2.0 / AT_MOST - 2.0)
    looking._took = 0.01
    assert looking.rest(1.0) == pytest.approx(0.99)


def test_a_change_is_of_what_is_stored(queue: Queue) -> None:
    looking = QueueWatch(None)
    first = looking.look(queue)
    assert first.change is None
    queue.send_many("mail", range(50))
    assert (looking.look(queue).changes["mail"]) > 0
    assert [rate(each) for each in (0, 0.04, 1, -12.34, 99.9, -1_234)] == [
        "0/s", "+0.0/s", "+1.0/s", "-12.3/s", "+99.9/s", "-1,234/s",
    ]  # fmt: skip
