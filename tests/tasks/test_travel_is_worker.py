"""Time travel and a worker make the same of a message: the same program runs under both, and their histories are compared."""

import asyncio
import inspect
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bide import (
    AsyncQueue,
    Bury,
    ConfigError,
    Failed,
    ManualClock,
    NoResult,
    Queue,
    Retry,
    Sent,
    Snooze,
    Worker,
    current,
    current_batch,
    steps,
)
from bide.queue.tasks import outcome
from bide.queue.tasks.limits import Overdue
from tests.told import Told

LONG = 30.0  # seconds: a worker that has not come to an end by then has failed
SOON = steps("10ms")
Coloured = Callable[[Callable[..., Any]], Callable[..., Any]]


class Play:
    """A queue with tasks, and what its handlers have seen."""

    def __init__(self, kind: type[Any], url: str, coloured: Coloured, **options: Any) -> None:
        self.queue: Any = kind(url, **options)
        self.coloured: Coloured = coloured
        self.middleware: list[Callable[..., Any]] = []
        self.seen: list[Any] = []
        self.sends: list[Callable[[], Any]] = []
        self.told: Told = Told()
        self.queue.events.subscribe(self.told)

    def task(self, function: Callable[..., Any], **options: Any) -> Any:
        """A task of the plain function, in the colour of this play."""
        return self.queue.task("t", **{"backoff": SOON, **options})(self.coloured(function))

    def send(self, *args: Any, **kwargs: Any) -> None:
        self.sends.append(lambda: self.queue.send("t", *args, **kwargs))

    def see(self, *what: Any) -> None:
        self.seen.append(what)


class History(NamedTuple):
    seen: list[Any]
    left: tuple[int, int]
    dead: list[Any]
    kept: list[Any]  # of what was sent, what its result is, or why there is none
    told: list[Any]  # of each message, the events


async def _done(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


def _goes_on(stats: Any) -> int:
    return int(stats.scheduled + stats.ready + stats.leased)


async def _result(queue: Any, sent: Sent) -> Any:
    try:
        return await _done(queue.result(sent, timeout=0))
    except (NoResult, ConfigError) as error:
        return type(error).__name__


async def _history(play: Play, sent: Sequence[Any]) -> History:
    queue = play.queue
    stats = await _done(queue.stats("t"))
    dead = []
    for each in await _done(queue.messages("t", state="dead")):
        found = await _done(queue.get(each.id))
        dead.append((each.body, each.attempt, each.last_error, [(one.number, one.error) for one in found.attempts]))
    kept = [await _result(queue, each) for each in sent if isinstance(each, Sent)]
    return History(play.seen, (_goes_on(stats), stats.dead), sorted(dead, key=repr), kept, play.told.stories)


def _travelled(play: Play) -> History:
    queue = play.queue
    queue.session.setup.middleware = tuple(play.middleware)
    if isinstance(queue, Queue):
        sent = [send() for send in play.sends]
        queue.testing.advance("3h", raise_errors=False)
        history = asyncio.run(_history(play, sent))
        queue.close()
        return history

    async def go() -> History:
        sent = [await send() for send in play.sends]
        await queue.testing.advance("3h", raise_errors=False)
        history = await _history(play, sent)
        await queue.close()
        return history

    return asyncio.run(go())


def _worked(play: Play) -> History:
    queue = play.queue

    async def go() -> History:
        sent = [await _done(send()) for send in play.sends]
        async with asyncio.timeout(LONG), Worker(queue, grace=LONG, middleware=play.middleware):
            while _goes_on(await _done(queue.stats("t"))):  # noqa: ASYNC110  (there is no event of the engine's)
                await asyncio.sleep(0.005)
        history = await _history(play, sent)
        await _done(queue.close())
        return history

    return asyncio.run(go())


def _times(play: Play) -> int:
    """In how many calls the handler is, this one included."""
    play.see("called", current().attempt)
    return sum(each[0] == "called" for each in play.seen)


def fails(play: Play) -> None:
    def handle() -> None:
        _times(play)
        raise ValueError("bad")

    play.task(handle)
    play.send()


def fails_once(play: Play) -> None:
    def handle() -> None:
        if _times(play) == 1:
            raise ValueError("bad")

    play.task(handle)
    play.send()


def _raising(error: Callable[[], BaseException], **options: Any) -> Callable[[Play], None]:
    def scenario(play: Play) -> None:
        def handle() -> None:
            _times(play)
            raise error()

        play.task(handle, max_attempts=2, **options)
        play.send()

    return scenario


def snoozes(play: Play) -> None:
    def handle() -> None:
        if _times(play) < 3:
            raise Snooze("10ms")

    play.task(handle)
    play.send()


def _ending(how: str) -> Callable[[Play], None]:
    def scenario(play: Play) -> None:
        def end() -> Any:
            delivery = current()
            play.see("called", delivery.attempt)
            if delivery.attempt == 1:
                return {"ack": delivery.ack, "retry": delivery.retry, "bury": lambda: delivery.bury("own")}[how]()
            return None

        async def handle() -> None:
            await _done(end())

        def plain() -> None:
            end()

        is_async = inspect.iscoroutinefunction(play.coloured(plain))
        play.queue.task("t", on_dead=lambda *_: play.see("on_dead"))(handle if is_async else plain)
        play.send()

    return scenario


def _on_dead(on_dead: Callable[[Play], Callable[..., Any]], **options: Any) -> Callable[[Play], None]:
    def scenario(play: Play) -> None:
        def handle() -> None:
            raise ValueError("bad")

        play.task(handle, max_attempts=1, on_dead=on_dead(play), **options)
        play.send()

    return scenario


def looks(play: Play) -> Callable[..., Any]:
    def on_dead(delivery: Any, reason: str) -> None:
        in_loop = asyncio._get_running_loop() is not None
        play.see(type(delivery).__name__, delivery.attempt, reason, in_loop)

    return on_dead


def looks_async(play: Play) -> Callable[..., Any]:
    async def on_dead(delivery: Any, reason: str) -> None:
        play.see(type(delivery).__name__, delivery.attempt, reason, current().attempt)

    return on_dead


def runs_a_loop(play: Play) -> Callable[..., Any]:
    def on_dead(delivery: Any, reason: str) -> None:
        play.see(asyncio.run(_done("ran")))

    return on_dead


def acks(play: Play) -> Callable[..., Any]:
    def on_dead(delivery: Any, reason: str) -> Any:
        return delivery.ack()

    return on_dead


def _raises(error: BaseException) -> Callable[[Play], Callable[..., Any]]:
    def make(play: Play) -> Callable[..., Any]:
        def on_dead(delivery: Any, reason: str) -> None:
            play.see("on_dead")
            raise error

        return on_dead

    return make


def _raises_async(error: BaseException) -> Callable[[Play], Callable[..., Any]]:
    def make(play: Play) -> Callable[..., Any]:
        async def on_dead(delivery: Any, reason: str) -> None:
            play.see("on_dead")
            raise error

        return on_dead

    return make


def too_slow(play: Play) -> None:
    async def slow() -> None:
        play.see("called", current().attempt)
        await asyncio.sleep(LONG)

    def blocking() -> None:
        play.see("called", current().attempt)
        until = time.monotonic() + LONG
        while not current().expired and time.monotonic() < until:
            threading.Event().wait(0.01)

    is_async = inspect.iscoroutinefunction(play.coloured(blocking))
    play.queue.task("t", timeout="100ms", max_attempts=2, backoff=SOON)(slow if is_async else blocking)
    play.send()


def blocks(play: Play) -> None:
    def handle() -> None:
        _times(play)
        threading.Event().wait(0.3)

    play.task(handle, timeout="100ms", max_attempts=2)
    play.send()


def bad_backoff(play: Play) -> None:
    def backoff(attempt: int) -> float:
        play.see("backoff", attempt)
        raise SystemExit(3)

    def handle() -> None:
        _times(play)
        raise ValueError("bad")

    play.task(handle, max_attempts=2, backoff=backoff)
    play.send()


def large_batch(play: Play) -> None:
    def handle(items: list[int]) -> None:
        play.see(len(items), len(current_batch()))

    play.task(handle, batch=5_000, linger="2s")
    play.sends.append(lambda: play.queue.send_many("t", range(1_500)))


def batch_that_partly_fails(play: Play) -> None:
    def handle(items: list[int]) -> Any:
        play.see(sorted(items))
        return [Failed(each, "odd") for each in items if each % 2]

    play.task(handle, batch=10, linger="200ms", max_attempts=2)
    play.sends.append(lambda: play.queue.send_many("t", range(4)))


def batch_that_fails(play: Play) -> None:
    def handle(items: list[int]) -> None:
        play.see(sorted(items))
        raise ValueError("bad")

    play.task(handle, batch=10, linger="200ms", max_attempts=2, on_dead=looks(play))
    play.sends.append(lambda: play.queue.send_many("t", range(3)))


def wrong_type(play: Play) -> None:
    def handle(order: int) -> None:
        raise AssertionError("was called")

    play.task(handle, on_dead=looks(play))
    play.send({"order": "x"})


def wrong_type_told(play: Play) -> None:
    def handle(order: int) -> None:
        raise AssertionError("was called")

    play.task(handle, on_dead=looks_async(play))
    play.send({"order": "x"})


def no_arguments(play: Play) -> None:
    def handle(order: int) -> None:
        raise AssertionError("was called")

    play.task(handle)
    play.send([1])


def _returning(value: Callable[[], Any], **options: Any) -> Callable[[Play], None]:
    def scenario(play: Play) -> None:
        def handle() -> Any:
            return value()

        play.task(handle, **{"keep": "1d", "max_attempts": 2, **options})
        play.send()

    return scenario


def _bad() -> Any:
    raise ValueError("bad")


def acks_and_returns(play: Play) -> None:
    def plain() -> int:
        current().ack()
        return 3

    async def handle() -> int:
        await current().ack()
        return 3

    is_async = inspect.iscoroutinefunction(play.coloured(plain))
    play.queue.task("t", keep="1d")(handle if is_async else plain)
    play.send()


SCENARIOS: dict[str, Callable[[Play], None]] = {
    "fails": fails,
    "fails once": fails_once,
    "Bury": _raising(lambda: Bury("no")),
    "Retry": _raising(lambda: Retry(0)),
    "a group": _raising(lambda: ExceptionGroup("all", [ValueError("bad"), Bury("no")])),
    "SystemExit": _raising(lambda: SystemExit(3)),
    "CancelledError": _raising(asyncio.CancelledError),
    "GeneratorExit": _raising(GeneratorExit),
    "StopIteration": _raising(lambda: StopIteration(1)),
    "no_retry_for": _raising(KeyError, no_retry_for=KeyError),
    "retry_for": _raising(KeyError, retry_for=ValueError),
    "Snooze": snoozes,
    "Snooze for too long": _raising(lambda: Snooze("1h", max_wait="1m")),
    "acks by itself": _ending("ack"),
    "retries by itself": _ending("retry"),
    "buries by itself": _ending("bury"),
    "on_dead": _on_dead(looks),
    "an async on_dead": _on_dead(looks_async),
    "on_dead that runs a loop": _on_dead(runs_a_loop),
    "on_dead that acks": _on_dead(acks),
    "on_dead that raises": _on_dead(_raises(ValueError("on_dead"))),
    "on_dead that exits": _on_dead(_raises(SystemExit(3))),
    "an async on_dead that raises": _on_dead(_raises_async(ValueError("on_dead"))),
    "an async on_dead that cancels itself": _on_dead(_raises_async(asyncio.CancelledError())),
    "too slow": too_slow,
    "blocks beyond its timeout": blocks,
    "a backoff that exits": bad_backoff,
    "a large batch": large_batch,
    "a batch that partly fails": batch_that_partly_fails,
    "a batch that fails": batch_that_fails,
    "a wrong type": wrong_type,
    "a wrong type, and an async on_dead": wrong_type_told,
    "no arguments": no_arguments,
    "returns": _returning(lambda: 3),
    "returns, and nothing is kept": _returning(lambda: 3, keep=None),
    "returns nothing": _returning(lambda: None),
    "returns what no body holds": _returning(object),
    "returns too late": _returning(lambda: threading.Event().wait(0.3), timeout="100ms"),
    "fails instead of returning": _returning(_bad),
    "acks by itself and returns": acks_and_returns,
}


def _watching(play: Play) -> Callable[..., Any]:
    """Sees what handle() gives or raises."""

    async def middleware(delivery: Any, handle: Any) -> None:
        try:
            value = await handle()
        except BaseException as error:
            play.see("raised", type(error).__name__, str(error)[:40], delivery.attempt)
            raise
        play.see("gave", value)

    return middleware


def _forgiving(play: Play) -> Callable[..., Any]:
    async def middleware(delivery: Any, handle: Any) -> None:
        try:
            await handle()
        except Exception as error:
            play.see("forgave", type(error).__name__)

    return middleware


def _acking(play: Play) -> Callable[..., Any]:
    async def middleware(delivery: Any, handle: Any) -> None:
        try:
            await handle()
        except Exception as error:
            play.see("acked", type(error).__name__)
            await delivery.ack()

    return middleware


def _burying(play: Play) -> Callable[..., Any]:
    async def middleware(delivery: Any, handle: Any) -> None:
        try:
            await handle()
        except Exception as error:
            raise Bury(f"by middleware: {type(error).__name__}") from error

    return middleware


@pytest.fixture(params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/bide.db"


def _both(kind: type[Any], url: str, coloured: Coloured, scenario: Callable[[Play], None], around: Any = None) -> list[History]:
    histories = []
    for play_it, where, options in ((_travelled, "memory://", {"clock": ManualClock()}), (_worked, url, {})):
        play = Play(kind, where, coloured, **options)
        play.middleware += [] if around is None else [around(play)]
        scenario(play)
        histories.append(play_it(play))
    return histories


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
@pytest.mark.parametrize("kind", [AsyncQueue, Queue])
def test_each_outcome_is_the_same(kind: type[Any], url: str, coloured: Coloured, scenario: Callable[[Play], None]) -> None:
    travelled, worked = _both(kind, url, coloured, scenario)

    assert travelled == worked
    assert travelled.told


@pytest.mark.parametrize(
    ("kind", "around"),
    [
        (AsyncQueue, _watching),
        (Queue, _watching),
        (AsyncQueue, _forgiving),
        (AsyncQueue, _burying),
        (AsyncQueue, _acking),
        (Queue, _acking),
    ],
    ids=lambda each: each.__name__.strip("_"),
)
@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=SCENARIOS)
def test_middleware_sees_the_same(
    kind: type[Any], coloured: Coloured, scenario: Callable[[Play], None], around: Callable[[Play], Any]
) -> None:
    travelled, worked = _both(kind, "memory://", coloured, scenario, around)

    assert travelled == worked


@pytest.mark.parametrize("options", [{}, {"concurrency": 1}, {"batch": 5, "linger": "50ms"}], ids=["plain", "limited", "batch"])
@pytest.mark.parametrize("kind", [AsyncQueue, Queue])
def test_of_what_is_overdue_the_older_is_left_out_also_if_it_does_not_fit(
    kind: type[Any], url: str, coloured: Coloured, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Overdue, "takes", lambda self, claimed, now: claimed.attempt == 1)

    def scenario(play: Play) -> None:
        def handle(order: int) -> None:
            play.see(order)

        def handle_all(orders: list[int]) -> None:
            play.see(*orders)

        play.task(handle_all if "batch" in options else handle, catch_up="latest", max_attempts=1, **options)
        for value in ("does not fit", 1):
            play.send(value if "batch" in options else {"order": value})

    travelled, worked = _both(kind, url, coloured, scenario)

    assert travelled == worked
    assert (travelled.seen, travelled.dead) == ([(1,)], [])


@pytest.mark.parametrize("around", [None, _burying], ids=["bare", "burying"])
@pytest.mark.parametrize("kind", [AsyncQueue, Queue])
def test_a_message_for_another_release_comes_to_the_same_end(
    kind: type[Any], url: str, coloured: Coloured, around: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in (("DEPLOY", 300), ("SOON", 20), ("SELDOM", 50)):
        monkeypatch.setattr(outcome, name, value)

    def scenario(play: Play) -> None:
        def handle(order: int) -> None:
            raise AssertionError("was called")

        play.task(handle, max_attempts=1, on_dead=looks(play))
        play.send({"order": 1, "gift": 2})

    travelled, worked = _both(kind, url, coloured, scenario, around)

    assert travelled == worked
    assert travelled.left == (0, 1)
    assert len(travelled.seen) == 1


async def test_middleware_sees_a_timeout_as_such_and_a_stop_as_a_cancellation() -> None:
    seen: list[str] = []
    began = asyncio.Event()
    queue = AsyncQueue("memory://")

    async def watch(delivery: Any, handle: Any) -> None:
        try:
            await handle()
        except BaseException as error:
            seen.append(f"{delivery.topic}: {type(error).__name__}: {error}")
            raise

    @queue.task("slow", timeout="50ms", max_attempts=1)
    async def slow() -> None:
        await asyncio.sleep(LONG)

    @queue.task("stopped", timeout="1h")
    async def stopped() -> None:
        began.set()
        await asyncio.sleep(LONG)

    @queue.task("unfit")
    async def unfit(order: int) -> None: ...

    await slow.send()
    await stopped.send()
    await queue.send("unfit", {"order": "x"})
    async with asyncio.timeout(LONG), Worker(queue, grace=0, middleware=[watch]):
        await began.wait()
        while len(seen) < 2:  # noqa: ASYNC110  (an append is no event)
            await asyncio.sleep(0.005)
    await queue.close()

    assert sorted(seen) == [
        "slow: TimeoutError: took longer than its timeout of 0.05 s",
        "stopped: CancelledError: ",
        "unfit: Unread: unfit(order: int) -> None can't take this message: Expected `int`, got `str` - at `$.order`.",
    ]
