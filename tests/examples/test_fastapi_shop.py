"""The FastAPI shop: with time travel, with its own worker, and as real processes that are killed."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from bide import ManualClock, Queue
from examples.fastapi_shop import app, tasks
from examples.fastapi_shop import shop as data
from tests.examples.running import PATIENCE, Running, became, processes, soon, time_is_up


class Shop(NamedTuple):
    client: httpx.AsyncClient
    clock: ManualClock

    async def order(self) -> str:
        answer = await self.client.post("/orders", json={"email": "ada@example.com"})
        assert answer.status_code == 201
        return str(answer.json()["order"])

    async def told(self, order: str) -> Any:
        return (await self.client.get(f"/orders/{order}")).raise_for_status().json()

    async def outcomes(self, by: str, *, raise_errors: bool = True) -> list[tuple[str, str]]:
        return [(each.topic, each.outcome) for each in await tasks.queue.testing.advance(by, raise_errors=raise_errors)]


Opened = Callable[..., AbstractAsyncContextManager[Shop]]


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Opened:
    """The application in this process, by a clock that stands still, with its worker here or not."""
    monkeypatch.setattr(data, "PATH", str(tmp_path / "shop.db"))
    monkeypatch.setattr(tasks, "MAIL_FAILS", 0.0)

    @asynccontextmanager
    async def open_with(*, worker: bool) -> AsyncIterator[Shop]:
        monkeypatch.setattr(app, "WORKER_HERE", worker)
        with tasks.queue.testing.in_memory() as clock:
            async with (
                app.app.router.lifespan_context(app.app),
                httpx.AsyncClient(transport=httpx.ASGITransport(app.app), base_url="http://shop") as client,
            ):
                yield Shop(client, clock)

    return open_with


@pytest.fixture
async def shop(opened: Opened) -> AsyncIterator[Shop]:
    """Without a worker: time travel calls the tasks, one after the other."""
    async with opened(worker=False) as shop:
        yield shop


async def test_an_order_that_is_not_paid_is_reminded_of_then_cancelled(shop: Shop) -> None:
    order = await shop.order()
    assert await shop.outcomes("9m59s") == []
    assert await shop.outcomes("1s") == [("order.remind", "done"), ("mail", "done")]
    assert await shop.outcomes("4m59s") == []
    assert (await shop.told(order))["state"] == "open"
    assert await shop.outcomes("1s") == [("order.cancel", "done"), ("mail", "done")]
    assert await shop.told(order) == {
        "order": order,
        "state": "cancelled",
        "mails": ["reminder", "cancelled"],
        "pay_by": None,
        "cancellation": None,
        "reminder": None,
    }


async def test_an_order_that_is_paid_in_time_hears_nothing_more_than_its_receipt(shop: Shop) -> None:
    order = await shop.order()
    await shop.outcomes("5m")
    answer = await shop.client.post(f"/orders/{order}/pay")
    assert (answer.status_code, answer.json()["state"]) == (200, "paid")
    assert (answer.json()["cancellation"], answer.json()["reminder"]) == ("cancelled", "cancelled")
    assert await shop.outcomes("1d") == [("mail", "done")]
    assert (await shop.told(order))["mails"] == ["receipt"]


async def test_paying_twice_is_paying_once(shop: Shop) -> None:
    order = await shop.order()
    await shop.client.post(f"/orders/{order}/pay")
    await shop.outcomes("1m")
    again = await shop.client.post(f"/orders/{order}/pay")
    assert (again.status_code, again.json()["state"], again.json()["cancellation"]) == (200, "paid", "gone")
    await shop.outcomes("1d")
    assert (await shop.told(order))["mails"] == ["receipt"]


async def test_paying_too_late_is_told_and_changes_nothing(shop: Shop) -> None:
    order = await shop.order()
    await shop.outcomes("15m")
    answer = await shop.client.post(f"/orders/{order}/pay")
    assert answer.status_code == 409
    assert answer.json()["detail"].startswith("Too late")
    assert (await shop.told(order))["state"] == "cancelled"


async def test_a_payment_that_overtakes_a_running_cancellation_wins(shop: Shop) -> None:
    order = await shop.order()
    shop.clock.advance(900)
    [running] = await tasks.queue.receive("order.cancel")  # a worker has it, and has not looked at the order yet
    answer = await shop.client.post(f"/orders/{order}/pay")
    assert (answer.status_code, answer.json()["cancellation"]) == (200, "running")
    late = await shop.client.post(f"/orders/{order}/more-time")
    assert (late.status_code, late.json()["detail"]) == (409, "Too late: the order is being cancelled at this moment.")

    await running.release()
    assert ("order.cancel", "done") in await shop.outcomes("0s")
    assert (await shop.told(order))["state"] == "paid"
    assert (await shop.told(order))["mails"] == ["receipt"]


async def test_more_time_puts_both_off(shop: Shop) -> None:
    order = await shop.order()
    await shop.outcomes("9m")
    answer = await shop.client.post(f"/orders/{order}/more-time")
    assert (answer.json()["cancellation"], answer.json()["reminder"]) == ("moved", "moved")
    assert await shop.outcomes("9m59s") == []
    assert await shop.outcomes("1s") == [("order.remind", "done"), ("mail", "done")]
    again = await shop.client.post(f"/orders/{order}/more-time")
    assert (again.json()["cancellation"], again.json()["reminder"]) == ("moved", "gone")
    assert await shop.outcomes("14m59s") == []
    assert await shop.outcomes("1s") == [("order.cancel", "done"), ("mail", "done")]

    late = await shop.client.post(f"/orders/{order}/more-time")
    assert (late.status_code, late.json()["detail"]) == (409, "There is nothing to put off: the order is cancelled.")


async def test_mail_that_fails_is_tried_again_and_at_last_kept_as_a_dead_letter(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    order = await shop.order()
    await shop.client.post(f"/orders/{order}/pay")
    monkeypatch.setattr(tasks, "MAIL_FAILS", 1.0)
    assert await shop.outcomes("1h", raise_errors=False) == [("mail", "retry")] * 7 + [("mail", "dead")]
    assert (await shop.told(order))["mails"] == []
    monkeypatch.setattr(tasks, "MAIL_FAILS", 0.0)
    assert await tasks.queue.requeue("mail") == 1
    assert await shop.outcomes("0s") == [("mail", "done")]
    assert (await shop.told(order))["mails"] == ["receipt"]


async def test_a_cancellation_may_come_twice(shop: Shop) -> None:
    order = await shop.order()
    for _ in range(2):
        await tasks.queue.send("order.cancel", {"order": order})
    assert (await shop.outcomes("1d")).count(("order.cancel", "done")) == 3
    assert (await shop.told(order))["mails"] == ["cancelled"]


async def test_a_cancellation_that_died_before_its_mail_sends_it_when_it_comes_again(shop: Shop) -> None:
    order = await shop.order()
    data.cancel(order)  # all that the first attempt got done
    await shop.outcomes("15m")
    assert (await shop.told(order))["mails"] == ["cancelled"]


async def test_a_cancellation_for_an_order_that_was_never_written_does_nothing(shop: Shop) -> None:
    await tasks.queue.send("order.cancel", {"order": "gone with its request"})
    assert await shop.outcomes("0s") == [("order.cancel", "done")]


@pytest.mark.parametrize("path", ["", "/pay", "/more-time"])
async def test_an_unknown_order_is_not_found(shop: Shop, path: str) -> None:
    answer = await shop.client.request("POST" if path else "GET", f"/orders/none{path}")
    assert (answer.status_code, answer.json()) == (404, {"detail": "There is no such order."})


async def test_its_own_worker_cancels_as_time_goes_by(opened: Opened) -> None:
    async with opened(worker=True) as shop:
        order, paid = await shop.order(), await shop.order()
        await shop.client.post(f"/orders/{paid}/pay")
        shop.clock.advance(900)
        await eventually(lambda: has_mail(shop, order, "cancelled"))
        await eventually(lambda: has_mail(shop, paid, "receipt"))
        assert [(await shop.told(each))["state"] for each in (order, paid)] == ["cancelled", "paid"]


async def has_mail(shop: Shop, order: str, about: str) -> bool:
    return about in (await shop.told(order))["mails"]


async def eventually(look: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not await look():  # noqa: ASYNC110  (the shop is seen from outside, over HTTP)
            await asyncio.sleep(0.01)


# real processes


def settings(folder: Path) -> dict[str, str]:
    return {"BIDE_URL": f"sqlite:///{folder}/bide.db", "SHOP_DB": f"{folder}/shop.db", "SHOP_MAIL_FAILS": "0"}


def server(running: Running, **more: str) -> tuple[Any, httpx.Client]:
    uvicorn = running.start("uvicorn", "examples.fastapi_shop.app:app", "--port", "0", **more)
    return uvicorn, running.client(uvicorn)


def test_a_server_that_is_killed_loses_no_cancellation(tmp_path: Path) -> None:
    with processes(tmp_path, **settings(tmp_path)) as running:
        uvicorn, client = server(running)
        paid, unpaid = [client.post("/orders", json={"email": "ada@example.com"}).json()["order"] for _ in range(2)]
        assert client.post(f"/orders/{paid}/pay").json()["cancellation"] == "cancelled"
        assert soon(lambda: became(client, paid, "paid", "receipt"))
        uvicorn.kill()
        time_is_up(settings(tmp_path)["BIDE_URL"], unpaid)

        _, after = server(running)
        assert soon(lambda: became(after, unpaid, "cancelled", "cancelled"))
        assert became(after, paid, "paid", "receipt")


def test_a_worker_that_is_killed_while_it_cancels_loses_nothing(tmp_path: Path) -> None:
    worker = ("bide", "worker", "examples.fastapi_shop.tasks:queue", "--lease", "1s")
    with (
        processes(tmp_path, **settings(tmp_path)) as running,
        Queue(settings(tmp_path)["BIDE_URL"]) as queue,
        closing(sqlite3.connect(tmp_path / "shop.db", isolation_level=None)) as shop,
    ):
        _, client = server(running, SHOP_WORKER="apart", SHOP_PAY_WITHIN="500ms")
        order = client.post("/orders", json={"email": "ada@example.com"}).json()["order"]

        shop.execute("begin immediate")  # nobody else can change an order now, so the handler is in the midst of it
        first = running.start(*worker)
        assert soon(lambda: queue.stats("order.cancel").leased) == 1
        first.kill()
        shop.execute("rollback")
        assert client.get(f"/orders/{order}").json()["state"] == "open"

        running.start(*worker)
        assert soon(lambda: became(client, order, "cancelled", "cancelled"))
