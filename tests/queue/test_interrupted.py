"""Signal handlers that come in the middle of a call of their own thread, and call bide, or raise.

What they call is refused or answered, and never kept waiting for ever. What they cut short leaves nothing behind.
"""

import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sized
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from bide import ManualClock, Queue, Unavailable
from bide.engines.redis.server import Server

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGUSR1"), reason="signals are of POSIX")


class Interruption:
    """One signal, when so many steps of calls are done."""

    left = 0

    def step(self) -> None:
        if self.left:
            self.left -= 1
            if not self.left:
                signal.raise_signal(signal.SIGUSR1)


class Interrupting(ManualClock):
    """Engines read it in the middle of every verb: that is a step."""

    def __init__(self, interruption: Interruption) -> None:
        super().__init__()
        self.interruption = interruption

    def now_ns(self) -> int:
        self.interruption.step()
        return super().now_ns()


@pytest.fixture
def interruption() -> Interruption:
    return Interruption()


@pytest.fixture(params=["memory", "sqlite", pytest.param("redis", marks=pytest.mark.server)])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def queue(
    engine: str,
    interruption: Interruption,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Queue]:
    if engine == "redis":  # it has no clock of ours: there, the moment between a command and its answer is a step
        send = Server.send_texts

        def send_and_step(*command: Any) -> None:
            send(*command)
            interruption.step()

        monkeypatch.setattr(Server, "send_texts", send_and_step)
        made = Queue(request.getfixturevalue("redis_url"))
    else:
        url = "memory://" if engine == "memory" else f"sqlite:///{tmp_path}/bide.db"
        made = Queue(url, clock=Interrupting(interruption))
    with made:
        made.send("t", "before")
        yield made


@pytest.fixture
def on_signal() -> Iterator[Callable[[Callable[[], object]], list[object]]]:
    """Sets what the handler does; what came of it, or the error, is in the list."""
    before = signal.getsignal(signal.SIGUSR1)

    def set_to(action: Callable[[], object]) -> list[object]:
        came: list[object] = []

        def handler(number: int, frame: FrameType | None) -> None:
            try:
                came.append(action())
            except Exception as error:
                came.append(error)

        signal.signal(signal.SIGUSR1, handler)
        return came

    yield set_to
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("engine", ["memory", "sqlite"], indirect=True)
@pytest.mark.parametrize("what", ["send", "receive", "purge"])
def test_a_call_in_the_middle_of_a_send_is_refused_with_a_sentence_and_does_nothing(
    what: str, queue: Queue, interruption: Interruption, on_signal: Any
) -> None:
    calls: dict[str, Callable[[], object]] = {
        "send": lambda: queue.send("t", "from the handler"),
        "receive": lambda: queue.receive("t", wait=60),
        "purge": lambda: queue.purge("t", state="ready"),
    }
    came = on_signal(calls[what])
    interruption.left = 1
    queue.send("t", "sent")
    assert [type(each) for each in came] == [Unavailable]
    assert "signal handler" in str(came[0])
    assert [each.body for each in queue.receive("t", limit=9)] == ["before", "sent"]


@pytest.mark.parametrize("engine", [pytest.param("redis", marks=pytest.mark.server)], indirect=True)
def test_on_redis_a_call_in_the_middle_of_a_send_is_answered(queue: Queue, interruption: Interruption, on_signal: Any) -> None:
    came = on_signal(lambda: queue.send("t", "from the handler"))
    interruption.left = 1
    queue.send("t", "sent")
    assert [each.created for each in came] == [True]
    assert {each.body for each in queue.receive("t", limit=9)} == {"before", "sent", "from the handler"}


@pytest.mark.parametrize("engine", [pytest.param("redis", marks=pytest.mark.server)], indirect=True)
def test_on_redis_a_close_in_the_middle_of_a_receive_gives_back_what_that_has_claimed(
    queue: Queue, interruption: Interruption, on_signal: Any
) -> None:
    """It does not wait for the receive, which goes on only when the handler has ended."""
    queue.ack_many(queue.receive("t"))  # and upkeep is done
    queue.send("t", 1, max_attempts=1)
    came = on_signal(queue.close)
    interruption.left = 1
    with pytest.raises(Unavailable, match="is closed"):
        queue.receive("t", lease="1h")
    assert came == [None]
    with Queue(queue.session.setup.settings.url) as after:
        assert [(each.body, each.attempt) for each in after.receive("t")] == [(1, 1)]


def test_a_close_in_the_middle_of_a_receive_is_never_kept_waiting(
    engine: str, queue: Queue, interruption: Interruption, on_signal: Any, caplog: pytest.LogCaptureFixture
) -> None:
    came = on_signal(queue.close)
    queue.ack_many(queue.receive("t"))  # and upkeep is done
    queue.send("t")
    interruption.left = 1
    with pytest.raises(Unavailable, match="is closed"):
        queue.receive("t")
    [answer] = came
    assert answer is None or "signal handler" in str(answer)
    told = "1 message could not be given back, until the lease ends"
    assert (told in caplog.text) is (engine != "redis")


def test_a_call_between_two_calls_is_answered(queue: Queue, on_signal: Any) -> None:
    came = on_signal(lambda: queue.send("t", "from the handler"))
    signal.raise_signal(signal.SIGUSR1)
    assert [each.created for each in came] == [True]
    assert [each.body for each in queue.receive("t", limit=9)] == ["before", "from the handler"]


def test_a_look_that_is_interrupted_lets_a_send_through_or_refuses_it(
    engine: str, queue: Queue, interruption: Interruption, on_signal: Any
) -> None:
    came = on_signal(lambda: queue.send("t", "from the handler"))
    interruption.left = 1
    seen = queue.stats("t").ready
    [answer] = came
    assert queue.stats("t").ready == (1 if isinstance(answer, Unavailable) else 2)
    assert seen in ((1, 2) if engine == "redis" else (1,))  # two connections: a server may look at either first


class Alarm(Exception):
    """What a signal handler of the user's raises."""


@pytest.mark.parametrize("error", [Alarm, SystemExit, KeyboardInterrupt])
def test_what_a_receive_has_claimed_that_a_handler_ends_with_an_error_is_given_back(
    error: type[BaseException], queue: Queue, interruption: Interruption, on_signal: Any
) -> None:
    """At whichever step that comes: with one attempt only, a message that was leased to nobody would be buried unseen."""

    def handler(number: int, frame: FrameType | None) -> None:
        raise error

    on_signal(None)  # which restores what was there
    signal.signal(signal.SIGUSR1, handler)
    queue.ack_many(queue.receive("t"))  # and upkeep is done
    steps = 0
    while True:
        queue.send("t", steps, max_attempts=1)
        steps += 1
        interruption.left = steps
        try:
            found = queue.receive("t", lease="1h")
        except error:
            found = queue.receive("t", lease="1h")
        else:
            break
        finally:
            interruption.left = 0
        assert [(each.body, each.attempt) for each in found] == [(steps - 1, 1)]
        queue.ack_many(found)
    assert steps > 1
    queue.ack_many(found)


@pytest.mark.parametrize("place", ["sqlite", pytest.param("redis", marks=pytest.mark.server)])
def test_a_storm_of_signals_leaves_every_send_answered(
    place: str, request: pytest.FixtureRequest, tmp_path: Path, on_signal: Any
) -> None:
    url = f"sqlite:///{tmp_path}/bide.db" if place == "sqlite" else request.getfixturevalue("redis_url")
    with Queue(url) as queue:
        queue.send("t", "first")
        came = on_signal(lambda: queue.send("signal", 1))
        over = threading.Event()
        hits = threading.Thread(target=_signals, args=(over, came))
        hits.start()
        for number in range(200):
            queue.send("t", number)
        over.set()
        hits.join()
        accepted = [each for each in came if not isinstance(each, Exception)]
        refused = [each for each in came if isinstance(each, Exception)]
        assert came
        assert {type(each) for each in refused} <= {Unavailable}
        assert queue.stats("t").ready == 201
        assert queue.stats("signal").ready == len(accepted)


def _signals(over: threading.Event, came: Sized) -> None:
    main = threading.main_thread().ident
    assert main is not None
    sent = 0
    while not over.wait(0.001):
        if sys.platform != "win32" and len(came) == sent:  # the handler has ended, or calls would never go on
            signal.pthread_kill(main, signal.SIGUSR1)
            sent += 1
