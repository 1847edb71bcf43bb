"""The Flask shop: with time travel on its real file, and as real processes that are killed."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bide import BadTime, ManualClock
from examples.flask_shop import app, tasks
from examples.flask_shop import shop as data
from tests.examples.running import Process, became, processes, soon, time_is_up


class Shop(NamedTuple):
    client: Any
    clock: ManualClock

    def order(self) -> int:
        answer = self.client.post("/orders", json={"email": "ada@example.com"})
        assert answer.status_code == 201
        return int(answer.get_json()["order"])

    def post(self, order: int, what: str) -> tuple[int, Any]:
        answer = self.client.post(f"/orders/{order}/{what}")
        return answer.status_code, answer.get_json()

    def told(self, order: int) -> Any:
        answer = self.client.get(f"/orders/{order}")
        assert answer.status_code == 200
        return answer.get_json()

    def outcomes(self, by: str, *, raise_errors: bool = True) -> list[tuple[str, str]]:
        return [(each.topic, each.outcome) for each in tasks.queue.testing.advance(by, raise_errors=raise_errors)]


@pytest.fixture
def shop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Shop]:
    """On a file of the test's, as connection= needs one; by a clock that stands still."""
    path = str(tmp_path / "shop.db")
    monkeypatch.setattr(data, "PATH", path)
    monkeypatch.setattr(tasks, "MAIL_FAILS", 0.0)
    with tasks.queue.testing.elsewhere(f"sqlite:///{path}") as clock, tasks.queue:
        flask = app.create_app()
        flask.testing = True  # an error in a view is raised here
        with flask.test_client() as client:
            yield Shop(client, clock)


def test_an_order_that_is_not_paid_is_reminded_of_then_cancelled(shop: Shop) -> None:
    order = shop.order()
    assert shop.outcomes("9m59s") == []
    assert shop.outcomes("1s") == [("order.remind", "done"), ("mail", "done")]
    assert shop.outcomes("4m59s") == []
    assert shop.told(order)["state"] == "open"
    assert shop.outcomes("1s") == [("order.cancel", "done"), ("mail", "done")]
    assert shop.told(order) == {"order": order, "state": "cancelled", "pay_by": None, "mails": ["reminder", "cancelled"]}


def test_an_order_that_is_paid_in_time_hears_nothing_more_than_its_receipt(shop: Shop) -> None:
    order = shop.order()
    shop.outcomes("5m")
    assert shop.post(order, "pay") == (
        200,
        {"order": order, "state": "paid", "cancellation": "cancelled", "reminder": "cancelled"},
    )
    assert shop.outcomes("1d") == [("mail", "done")]
    assert shop.told(order)["mails"] == ["receipt"]


def test_paying_twice_is_paying_once(shop: Shop) -> None:
    order = shop.order()
    shop.post(order, "pay")
    code, told = shop.post(order, "pay")
    assert (code, told["state"], told["cancellation"]) == (200, "paid", "gone")
    assert shop.outcomes("1d") == [("mail", "done")]


def test_paying_too_late_is_told_and_changes_nothing(shop: Shop) -> None:
    order = shop.order()
    shop.outcomes("15m")
    code, told = shop.post(order, "pay")
    assert code == 409
    assert told["detail"].startswith("Too late")
    assert shop.told(order)["state"] == "cancelled"
    assert "receipt" not in shop.told(order)["mails"]


def test_a_payment_that_overtakes_a_running_cancellation_wins(shop: Shop) -> None:
    order = shop.order()
    shop.clock.advance(900)
    [running] = tasks.queue.receive("order.cancel")  # a worker has it, and has not looked at the order yet
    code, told = shop.post(order, "pay")
    assert (code, told["cancellation"]) == (200, "running")
    assert shop.post(order, "more-time") == (409, {"detail": "Too late: the order is being cancelled at this moment."})

    running.release()
    assert ("order.cancel", "done") in shop.outcomes("0s")
    assert shop.told(order)["state"] == "paid"
    assert shop.told(order)["mails"] == ["receipt"]


def test_more_time_puts_both_off(shop: Shop) -> None:
    order = shop.order()
    shop.outcomes("9m")
    _, told = shop.post(order, "more-time")
    assert (told["cancellation"], told["reminder"]) == ("moved", "moved")
    assert shop.outcomes("9m59s") == []
    assert shop.outcomes("1s") == [("order.remind", "done"), ("mail", "done")]
    _, told = shop.post(order, "more-time")
    assert (told["cancellation"], told["reminder"]) == ("moved", "gone")
    assert shop.outcomes("14m59s") == []
    assert shop.outcomes("1s") == [("order.cancel", "done"), ("mail", "done")]
    assert shop.post(order, "more-time") == (409, {"detail": "There is nothing to put off: the order is cancelled."})


def test_mail_that_fails_is_tried_again_and_at_last_kept_as_a_dead_letter(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    order = shop.order()
    shop.post(order, "pay")
    monkeypatch.setattr(tasks, "MAIL_FAILS", 1.0)
    assert shop.outcomes("1h", raise_errors=False) == [("mail", "retry")] * 7 + [("mail", "dead")]
    assert shop.told(order)["mails"] == []
    monkeypatch.setattr(tasks, "MAIL_FAILS", 0.0)
    assert tasks.queue.requeue("mail") == 1
    assert shop.outcomes("0s") == [("mail", "done")]
    assert shop.told(order)["mails"] == ["receipt"]


def test_a_cancellation_may_come_twice(shop: Shop) -> None:
    order = shop.order()
    for _ in range(2):
        tasks.queue.send("order.cancel", {"order": order})
    outcomes = shop.outcomes("1d")
    assert outcomes.count(("order.cancel", "done")) == 3
    assert outcomes.count(("mail", "done")) == 1  # the first one's; the reminder found the order cancelled
    assert shop.told(order)["mails"] == ["cancelled"]


def test_an_order_whose_message_can_not_be_sent_was_never_made(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "REMIND_AFTER", "not a time")  # the second message fails, after the row and the first one
    with pytest.raises(BadTime):
        shop.order()
    assert shop.client.get("/orders/1").status_code == 404
    assert tasks.queue.stats().scheduled == 0


@pytest.mark.parametrize("path", ["", "/pay", "/more-time"])
def test_an_unknown_order_is_not_found(shop: Shop, path: str) -> None:
    answer = shop.client.open(f"/orders/77{path}", method="POST" if path else "GET")
    assert (answer.status_code, answer.get_json()) == (404, {"detail": "There is no such order."})


def test_an_order_without_an_email_is_refused(shop: Shop) -> None:
    assert shop.client.post("/orders", json=[]).get_json() == {"detail": "An order needs an email."}


# real processes


def pids(health: Path) -> list[int]:
    """Of the worker processes, once all of them are at work."""
    return [each["process"] for each in json.loads(health.read_text())["processes"]] if health.exists() else []


def kill_at_once(supervisor: Process, workers: list[int]) -> None:
    """As when the machine goes down: nobody gets to say goodbye."""
    supervisor.kill()
    for pid in workers:
        with suppress(ProcessLookupError):  # it noticed that its supervisor is gone, and was quicker
            os.kill(pid, signal.SIGKILL)


def test_killed_workers_lose_no_cancellation(tmp_path: Path) -> None:
    worker = ("bide", "worker", "examples.flask_shop.tasks:queue", "--processes", "2", "--health")
    with processes(tmp_path, SHOP_DB=f"{tmp_path}/shop.db", SHOP_MAIL_FAILS="0") as running:
        first = running.start(*worker, str(tmp_path / "first.health"))
        flask = running.start("flask", "--app", "examples.flask_shop.app", "run", "--port", "0")
        client = running.client(flask)
        workers = soon(lambda: pids(tmp_path / "first.health"))
        assert len(workers) == 2
        paid, unpaid = [client.post("/orders", json={"email": "ada@example.com"}).json()["order"] for _ in range(2)]
        assert client.post(f"/orders/{paid}/pay").json()["cancellation"] == "cancelled"
        assert soon(lambda: became(client, paid, "paid", "receipt"))
        kill_at_once(first, workers)
        assert client.get(f"/orders/{unpaid}").json()["state"] == "open"
        time_is_up(f"sqlite:///{tmp_path}/shop.db", unpaid)

        second = running.start(*worker, str(tmp_path / "second.health"))
        os.kill(soon(lambda: pids(tmp_path / "second.health"))[0], signal.SIGKILL)  # its supervisor starts another
        assert soon(lambda: became(client, unpaid, "cancelled", "cancelled"))
        assert became(client, paid, "paid", "receipt")
        second.stop()
