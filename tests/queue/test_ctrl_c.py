"""Ctrl-C at each instant of a call at which Python runs signal handlers: whatever it cuts short, later calls go on."""

import sqlite3
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import psycopg
import pytest
from psycopg.pq import TransactionStatus

from bide import Queue

SECONDS = 10.0  # for a call that takes some milliseconds


class Interrupting:
    """Raises at one of the instants at which Python looks for signals: a function has begun, or something in C was done."""

    def __init__(self, at: int) -> None:
        self._left = at
        self._raised = False

    def __call__(self, _frame: FrameType, event: str, _of: object) -> None:
        if event in ("call", "c_return"):
            self._left -= 1
            if self._left == 0:
                self._raised = True
                sys.setprofile(None)
                raise KeyboardInterrupt

    def raised_during(self, call: Callable[[], object]) -> bool:
        sys.setprofile(self)
        try:
            call()
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        return self._raised


@pytest.fixture(
    params=[
        "memory",
        "sqlite",
        pytest.param("postgres", marks=pytest.mark.server),
        pytest.param("redis", marks=pytest.mark.server),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param in ("memory", "sqlite"):
        return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/bide.db"
    found: str = request.getfixturevalue(f"{request.param}_url")
    return found


def send(queue: Queue) -> None:
    queue.send("t", 1, delay="1h")


def send_receive_and_ack(queue: Queue) -> None:
    queue.send("u", 1)
    queue.ack_many(queue.receive("u", limit=100))


def cancel(queue: Queue) -> None:
    queue.cancel(topic="t", key="none")


def hangs(call: Callable[[Queue], None], queue: Queue) -> bool:
    thread = threading.Thread(target=call, args=[queue], daemon=True)
    thread.start()
    thread.join(SECONDS)
    return thread.is_alive()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("call", [send, send_receive_and_ack, cancel])
def test_later_calls_go_on_wherever_ctrl_c_comes(url: str, call: Callable[[Queue], None]) -> None:
    with Queue(f"{url}?connections=2" if url.startswith("postgres") else url) as queue:
        for _ in range(3):
            call(queue)  # what is made once is there
        at = 1
        while Interrupting(at).raised_during(lambda: call(queue)):
            assert not hangs(call, queue), f"after Ctrl-C at instant {at}"
            at += 1 if call is send else 7  # those of a send are all tried
        assert at > 20


def opened(url: str) -> Any:
    if url.startswith("postgres"):
        return psycopg.connect(url)
    connection = sqlite3.connect(url.removeprefix("sqlite:///"))
    connection.row_factory = sqlite3.Row
    return connection


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("url", ["sqlite", pytest.param("postgres", marks=pytest.mark.server)], indirect=True)
def test_a_connection_of_the_caller_is_not_taken_for_in_use_wherever_ctrl_c_comes(url: str) -> None:
    with Queue(url) as queue:
        queue.open()
        own = opened(url)

        def join() -> None:
            queue.send("t", 1, connection=own)

        join()  # it is known
        at, tried = 1, 0
        while Interrupting(at).raised_during(join):
            at += 1
            if isinstance(own, sqlite3.Connection):
                assert own.row_factory is sqlite3.Row, f"after Ctrl-C at instant {at - 1}"
            elif own.info.transaction_status == TransactionStatus.ACTIVE or own.closed:  # psycopg itself was cut short
                own.close()
                own = opened(url)
                join()
                continue
            own.rollback()
            join()
            tried += 1
        own.close()
        assert tried > 20
