"""Many messages at once: requeued, deleted or cancelled by their ids, or because a `where` chooses them."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest

from bide import BadOption, BadTime, ManualClock, Queue, Removed, Requeued, Where
from bide.queue.aio import bulk as sweeping_aio
from bide.queue.sync import bulk as sweeping_sync
from tests.queue.conftest import Awaited


async def bury(queue: Any, *keys: str, error: str = "no such order") -> list[str]:
    ids = []
    for key in keys:
        ids.append((await queue.send("t", key, key=key)).id)
        [delivery] = await queue.receive("t")
        await delivery.bury(error)
    return ids


async def keys_of(queue: Any, state: str) -> list[str]:
    return sorted(each.key for each in await queue.messages("t", state=state))


async def test_a_where_chooses_by_error_key_and_age(queue: Any, clock: ManualClock) -> None:
    await bury(queue, "order:1", "order:2", error="TimeoutError: shop")
    clock.advance(3_600)
    await bury(queue, "order:3", "cart:4", error="ValueError: no [such] order")
    await queue.send("t", 5)  # without a key or an error
    clock.advance(60)

    async def found(**where: Any) -> list[str | None]:
        return [each.key for each in await queue.messages("t", where=Where(**where))]

    assert await found(error="Timeout") == ["order:1", "order:2"]
    assert await found(error="no [such]") == ["order:3", "cart:4"]
    assert await found(key="order:*") == ["order:1", "order:2", "order:3"]
    assert await found(key="*:*4") == ["cart:4"]
    assert await found(key="order:") == []
    assert await found(key="*") == ["order:1", "order:2", "order:3", "cart:4"]
    assert await found(older="30m") == ["order:1", "order:2"]
    assert await found(younger="30m") == [None, "order:3", "cart:4"]
    assert await found(older="1m") == ["order:1", "order:2"]
    assert await found(error="order", key="c*", younger="30m") == ["cart:4"]
    assert len(await found()) == 5


async def test_a_page_has_what_is_chosen_of_those_that_were_looked_at(queue: Any) -> None:
    await queue.send_many("t", range(250))
    last = await queue.send("t", 250, key="last")
    found: list[Any] = []
    after = None
    for expected in (0, 0, 1):
        page = await queue.messages("t", where=Where(key="last"), after=after)
        assert len(page) == expected
        found, after = [*found, *page], page.after
    assert ([each.id for each in found], after) == ([last.id], None)


async def test_dead_letters_that_are_chosen_are_requeued(queue: Any) -> None:
    await bury(queue, "a1", "a2", "b1", error="TimeoutError")
    await bury(queue, "a3", error="KeyError")
    done = await queue.requeue("t", where=Where(error="timeOUT", key="a*"), delay="1h")
    assert (done, done.asked, done.gone) == (2, 2, 0)
    assert await keys_of(queue, "scheduled") == ["a1", "a2"]
    assert await keys_of(queue, "dead") == ["a3", "b1"]
    assert await queue.requeue("t", where=Where(key="a1")) == 0


@pytest.mark.parametrize("how", ["all", "ids", "where"])
async def test_requeued_letters_fall_due_evenly_over_the_spread(queue: Any, clock: ManualClock, how: str) -> None:
    ids = [each.id for each in await queue.send_many("t", range(2_400))]
    while deliveries := await queue.receive("t", limit=1_000):
        for delivery in deliveries:
            await delivery.bury("x")
    now = (await queue.send("t")).due
    chosen: dict[str, Any] = {"all": {}, "ids": {"ids": ids}, "where": {"where": Where(error="x")}}
    assert await queue.requeue("t", **chosen[how], delay="1m", spread="10m") == 2_400
    dues: list[int] = []
    after = None
    while True:
        page = await queue.messages("t", state="scheduled", limit=1_000, after=after)
        dues, after = [*dues, *(each.due for each in page)], page.after
        if after is None:
            break
    wanted = [now + 60_000 + place * 250 for place in range(2_400)]
    assert len(dues) == 2_400
    assert max(abs(due - each) for due, each in zip(dues, wanted, strict=True)) <= 250


def follow(queue: Any, monkeypatch: pytest.MonkeyPatch, engine: Any, verb: str, act: Callable[[Queue, Any], None]) -> None:
    """After each call of a verb of the engine, do something with its queue, told the arguments of the call."""
    call, twin = getattr(engine, verb), queue.inner if isinstance(queue, Awaited) else queue.sync

    def sync(*args: Any, **options: Any) -> Any:
        answer = call(*args, **options)
        act(twin, args)
        return answer

    async def aio(*args: Any, **options: Any) -> Any:
        answer = await call(*args, **options)
        act(twin, args)
        return answer

    monkeypatch.setattr(engine, verb, sync if isinstance(queue, Awaited) else aio)


async def engine_of(queue: Any) -> Any:
    return queue.inner.session.engine() if isinstance(queue, Awaited) else await queue.session.engine()


async def test_letters_that_die_again_meanwhile_are_not_requeued_again(queue: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await bury(queue, *(f"k{number}" for number in range(5)))

    def die(twin: Queue, _: Any) -> None:
        for each in twin.receive("t", limit=9):
            each.bury("no such order")

    monkeypatch.setattr(sweeping_aio, "PAGE", 2)
    monkeypatch.setattr(sweeping_sync, "PAGE", 2)
    follow(queue, monkeypatch, await engine_of(queue), "requeue", die)
    assert await queue.requeue("t", where=Where(error="no such")) == 5
    assert (await queue.stats("t")).dead == 5


async def test_dead_letters_are_deleted_by_their_ids_or_because_they_are_chosen(queue: Any) -> None:
    first, second, *_ = await bury(queue, "a1", "a2", "a3", "b1")
    running = await queue.send("t")
    [held] = await queue.receive("t")
    done = await queue.purge("t", state="dead", ids=[first, first, running.id])
    assert (done, done.asked, done.gone) == (1, 2, 1)
    assert await queue.purge("t", state="dead", where=Where(key="b*")) == 1
    assert await keys_of(queue, "dead") == ["a2", "a3"]
    assert await queue.requeue("t", [first, second]) == Requeued(1, asked=2)
    assert await held.ack() is None


async def test_pending_messages_that_are_chosen_are_cancelled(queue: Any) -> None:
    for number in range(250):
        await queue.send("t", number, key=f"order:{number}", delay=f"{number}s")
    await bury(queue, "order:dead")
    await queue.send("u", 1, key="order:7", delay="1h")
    [running] = await queue.receive("t")
    done = await queue.cancel_all("t", where=Where(key="order:1*"))
    assert (done, done.asked, done.running, done.gone) == (111, 111, 0, 0)
    assert not [each for each in await keys_of(queue, "scheduled") if each.startswith("order:1")]
    assert await queue.purge("t", state="scheduled", where=Where(key="*:2*")) == 61
    assert await queue.cancel_all("t") == 250 - 1 - 111 - 61
    stats = await queue.stats("t")
    assert (stats.pending, stats.leased, stats.dead) == (0, 1, 1)
    assert (await queue.stats("u")).scheduled == 1
    await running.ack()


@pytest.mark.parametrize("when", ["running", "gone"])
async def test_what_moves_meanwhile_is_counted_for_itself(queue: Any, monkeypatch: pytest.MonkeyPatch, when: str) -> None:
    await queue.send_many("t", [1, 2, 3])
    taken = await queue.receive("t")
    await taken[0].release()

    def take_one(twin: Queue, asked: Any) -> None:
        for held in twin.receive("t") if asked[1] == "ready" else ():
            if when == "gone":
                held.ack()

    follow(queue, monkeypatch, await engine_of(queue), "scan", take_one)
    done = await queue.cancel_all("t")
    assert (done, done.asked) == (2, 3)
    assert (done.running, done.gone) == ((1, 0) if when == "running" else (0, 1))


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"where": "error"}, BadOption), ({"where": Where(error="")}, BadOption), ({"where": Where(key="a\nb")}, BadOption),
        ({"where": Where(older="soon")}, BadTime), ({"where": Where(younger=-1)}, BadTime),
        ({"where": Where(), "ids": ["x"]}, BadOption), ({"ids": "abc"}, BadOption),
    ],
    ids=repr,
)  # fmt: skip
async def test_what_can_not_be_meant_is_refused(queue: Any, wrong: dict[str, Any], error: type[Exception]) -> None:
    await bury(queue, "k")
    for call in (queue.requeue("t", **wrong), queue.purge("t", state="dead", **wrong)):
        with pytest.raises(error):
            await call
    assert (await queue.stats("t")).dead == 1


async def test_purge_names_dead_letters_only(queue: Any) -> None:
    sent = await queue.send("t", delay=60)
    with pytest.raises(BadOption, match="Cancel"):
        await queue.purge("t", state="scheduled", ids=[sent.id])
    with pytest.raises(BadOption, match="Leased"):
        await queue.purge("t", state="leased", where=Where(key="*"))
    with pytest.raises(BadTime):
        await queue.requeue("t", delay="36525d", spread="1s")
    assert await queue.get(sent) is not None


def test_results_can_be_sent_to_other_processes() -> None:
    for done in (Requeued(3, 1, 5), Removed(3, 5, 1)):
        again = pickle.loads(pickle.dumps(done))
        assert (type(again), repr(again), again.gone) == (type(done), repr(done), done.gone)
