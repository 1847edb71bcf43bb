"""What a relay of an outbox has put off: it gives that back when it ends, and leaves it to others first."""

import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest

from bide import Call, Hook, OutcomeUnknown, Queue, QueueFull, Unavailable
from bide.engines.base import Claimed, Hold, NewMessage
from bide.queue import outbox
from bide.queue.relay import FORGOTTEN, LONG, OTHERS, Away, Lately, PutOff, Rests
from bide.queue.sync import relay as sync_relay
from tests.queue.test_outbox_handed_on import commit, connected, outbox_of
from tests.worker.processes import until

MANY = 2_500  # more than upkeep takes back at a time


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.server)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "postgres":
        found: str = request.getfixturevalue("postgres_url")
        return found
    return f"sqlite:///{tmp_path}/app.db"


@pytest.fixture
def queues(store: str, request: pytest.FixtureRequest) -> Iterator[list[Queue]]:
    """Two programs with the same queue and outbox."""
    with ExitStack() as programs:
        url = f"memory://{request.node.name.replace('[', '.').rstrip(']')}"
        found = [programs.enter_context(Queue(url, outbox=store)) for _ in range(2)]
        for each in found:
            each.open()
        yield found


def cut_off(queue: Queue, monkeypatch: pytest.MonkeyPatch, *, several: bool) -> list[int]:
    """From the part that has the topic "t". The list of its tries is returned."""
    target, tries = outbox_of(queue)._target, list[int]()
    put = target.put

    def away(messages: Sequence[NewMessage], **how: Any) -> Any:
        if any(each.topic == "t" for each in messages):
            tries.append(len(messages))
            raise Unavailable("It is away.")
        return put(messages, **how)

    monkeypatch.setattr(target, "put", away)
    monkeypatch.setattr(target, "part_of", lambda new: new.topic if several else None)
    return tries


def left(queue: Queue) -> tuple[int, int]:
    """How many in the outbox are ready and leased."""
    stats = outbox_of(queue).store.stats(outbox.TOPIC)
    return stats.ready, stats.leased


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("several", [True, False])
def test_a_relay_that_ends_gives_back_what_it_has_put_off(
    several: bool, wait: bool, queues: list[Queue], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = queues
    cut_off(first, monkeypatch, several=several)
    monkeypatch.setattr(sync_relay, "SOON", 20_000)
    monkeypatch.setattr(sync_relay, "GIVING", 60.0)
    with connected(store) as own:
        for begin in range(0, MANY, 500):
            first.send_many("t", range(begin, begin + 500), connection=own)
        own.commit()
    with ThreadPoolExecutor() as pool:
        running = pool.submit(first.relay, wait=wait)
        if wait:
            until(lambda: left(second)[1] >= (MANY if several else 100) and idle(first, several))
            first.close()
            assert running.result() == 0
        else:
            with pytest.raises(Unavailable):
                running.result()
    assert left(second) == (MANY, 0)
    assert second.relay(wait=False) == MANY
    assert [each.body for each in second.receive("t", limit=100)] == list(range(100))


class Spoils(Hook):
    """What is for the topic "s"."""

    def before(self, call: Call) -> None:
        if call.verb == "put" and call.engine.startswith("memory"):
            for message in call.asked:
                if message.topic == "s":
                    message.headers["x"] = 7


@pytest.mark.parametrize("full", [True, False])
def test_what_a_hook_spoils_is_given_back_also_beside_a_message_that_finds_no_room(
    full: bool, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Queue(f"memory://{tmp_path.name}", outbox=store, hooks=[Spoils()]) as queue, connected(store) as own:
        queue.open()
        target = outbox_of(queue)._target
        put = target.put

        def without_room(messages: Sequence[NewMessage]) -> Any:
            if full and any(each.topic == "t" for each in messages):
                raise QueueFull("It is full.")
            return put(messages)

        monkeypatch.setattr(target, "put", without_room)
        queue.send("s", 1, connection=own)
        queue.send("t", 2, connection=own)
        own.commit()
        with pytest.raises(QueueFull) if full else nullcontext():
            assert queue.relay(wait=False) == 1
        assert left(queue) == (1 + full, 0)


def idle(queue: Queue, several: bool) -> bool:
    """Whether its relay waits, or pauses after an error."""
    return not several or all(each.waits for each in outbox_of(queue).relays._all)


def test_what_a_dead_relay_had_is_taken_over_all_together(queues: list[Queue], store: str) -> None:
    first, second = queues
    with connected(store) as own:
        for begin in range(0, MANY, 500):
            first.send_many("t", range(begin, begin + 500), connection=own)
        own.commit()
    dead = outbox_of(first).store
    for _ in range(0, MANY, 500):
        last = dead.claim([outbox.TOPIC], 500, 1)
    until(lambda: dead.claim([outbox.NOBODY], 1, 1).now > last.now + 1)
    assert second.relay(wait=False) == MANY


class Clock:
    """In place of the module time, for what counts by it."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def monotonic(self) -> float:
        return self.now


def test_others_may_take_first_what_a_relay_has_put_off_for_long(
    queues: list[Queue], store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle one looks every five seconds, and finds it."""
    first, _ = queues
    clock, upkeep = Clock(), list[float]()
    cut_off(first, monkeypatch, several=True)
    found = outbox_of(first).store
    tend = found.tend

    def tended() -> Any:
        upkeep.append(clock.now)
        return tend()

    monkeypatch.setattr(found, "tend", tended)
    monkeypatch.setattr(sync_relay, "time", clock)
    monkeypatch.setattr("bide.queue.relay.time", clock)
    commit(first, store, None)
    relay = outbox_of(first).relay()
    relay._handover._rests._begin("t", 0, Unavailable("It is away."), LONG)
    relay._hand_on()
    [held] = [each.until for each in relay._put_off._all.values()]
    assert clock.now + LONG / 1000 < held < clock.now + 11
    while clock.now < held + OTHERS + 1:
        clock.now += 0.25
        relay._hand_on()
    assert upkeep[0] == 1_000
    assert not [at for at in upkeep if held <= at < held + OTHERS]
    assert upkeep[-1] == pytest.approx(held + OTHERS, abs=0.5)


def test_what_is_put_off_briefly_is_taken_back_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    monkeypatch.setattr("bide.queue.relay.time", clock)
    parts = PutOff()
    assert parts.upkeep(clock.now + 5) == clock.now + 5
    brief, long, full = (Hold(outbox.TOPIC, id, "1") for id in ("brief", "long", "full"))
    parts.add([brief], 500, shared=True)
    parts.add([long], LONG, shared=True)
    parts.add([full], LONG, shared=False)
    assert parts.upkeep(clock.now + 5) == clock.now + 0.5
    parts.taken_back(clock.now + 1)
    assert parts.upkeep(clock.now + 5) == clock.now + 5
    assert parts.upkeep(clock.now + 11) == clock.now + LONG / 1000  # which nobody else has a use for
    assert parts.shared() == [long]
    assert parts.shared() == []
    assert parts.upkeep(clock.now + 11) == clock.now + 11
    parts.add([long], LONG, shared=True)
    assert parts.upkeep(clock.now + 11) == clock.now + LONG / 1000 + OTHERS
    parts.add([brief], LONG + 1_000, shared=False)
    assert parts.upkeep(clock.now + 12) == clock.now + 11


def test_what_others_have_handed_on_is_forgotten_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1_000.0
    monkeypatch.setattr("bide.queue.relay.time.monotonic", lambda: now)
    lately = Lately[int]()
    lately.note("a", 1, LONG)
    now += FORGOTTEN + LONG / 1000 - 1
    lately.note("b", 2, LONG)
    assert list(lately) == [1, 2]
    assert lately.get("a", 0) == 1
    now += 2
    assert list(lately) == [2]
    now += FORGOTTEN
    lately.note("c", 3, LONG)
    assert set(lately._all) == {"b", "c"}
    now += 2 * FORGOTTEN
    lately.note("d", 4, LONG)
    assert set(lately._all) == {"d"}
    lately.forget(["d", "e"])
    assert list(lately) == []


def test_what_is_put_off_keeps_no_error_with_the_bodies_of_its_batch(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("CRITICAL", "bide.outbox")  # a record would keep it

    class Lost(OutcomeUnknown):
        pass

    error = Lost("It was cut.")
    kept, away = weakref.ref(error), Away(Rests(lambda _: None))
    away.put_off(Claimed("1", outbox.TOPIC, b"", {}, None, 0, 0, 1, 1, ""), error, LONG)
    del error
    assert kept() is None
    assert str(away.left) == "It was cut."


def test_an_engines_own_error_is_told_as_the_kind_of_bides_that_it_is() -> None:
    """It may not be made of a text."""

    class PortClosed(Unavailable):
        def __init__(self, host: str, port: int) -> None:
            super().__init__(f"{host}:{port} is away.")

    away = Away(Rests(lambda _: None))
    away.put_off(Claimed("1", "t", b"", {}, None, 0, 0, 1, 0, "token"), PortClosed("h", 1), 100)
    told = away.left
    assert (type(told), str(told)) == (Unavailable, "h:1 is away.")
