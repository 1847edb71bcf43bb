"""Time travel through the recipes of shops: orders, carts, deliveries, groups, sales, refunds."""

from datetime import UTC, datetime, timedelta

import pytest
from freezegun import freeze_time

from bide import Outgoing
from examples.recipes import confirm_delivery, group_purchase, limited_sale, refund_poll, two_reminders, unpaid_order
from tests.examples.recipes.travelling import Travels

Printed = pytest.CaptureFixture[str]
STATES = "select state from orders order by number"


def test_an_unpaid_order_is_cancelled_after_fifteen_minutes(travels: Travels) -> None:
    trip = travels(unpaid_order)
    unpaid_order.place(1)
    assert trip.outcomes("14m59s") == []
    assert trip.outcomes("1s") == ["done"]
    assert trip.rows(STATES) == ["cancelled"]
    assert not unpaid_order.pay(1)


def test_a_payment_ends_the_message_in_the_same_commit(travels: Travels) -> None:
    trip = travels(unpaid_order)
    unpaid_order.place(1)
    assert unpaid_order.pay(1)
    assert trip.queue.stats().pending == 0
    assert trip.rows(STATES) == ["paid"]


def test_an_order_that_is_rolled_back_leaves_no_message(travels: Travels) -> None:
    trip = travels(unpaid_order)
    unpaid_order.place(1)
    with pytest.raises(Exception, match="UNIQUE"):
        unpaid_order.place(1)
    assert trip.queue.stats().pending == 1


def test_a_payment_while_the_cancellation_is_delivered_wins_and_it_does_nothing(travels: Travels) -> None:
    trip = travels(unpaid_order)
    unpaid_order.place(1)
    trip.clock.advance(900)
    [delivery] = trip.queue.receive("order.cancel")  # a worker has it, and has not looked yet
    assert unpaid_order.pay(1)
    delivery.release()
    assert trip.outcomes("0s") == ["done"]
    assert trip.rows(STATES) == ["paid"]


def test_a_cancellation_that_comes_twice_cancels_once(travels: Travels, capsys: Printed) -> None:
    trip = travels(unpaid_order)
    unpaid_order.place(1)
    trip.queue.send("order.cancel", {"number": 1})
    assert trip.outcomes("15m") == ["done", "done"]
    assert capsys.readouterr().out == "order 1 is cancelled\n"


def test_a_cart_is_reminded_of_twice_then_closed(travels: Travels, capsys: Printed) -> None:
    trip = travels(two_reminders)
    two_reminders.leave(1)
    for words in two_reminders.WORDS:
        assert trip.outcomes("14m59s") == []
        assert trip.outcomes("1s") == ["ended"]  # in the commit of the next step
        assert capsys.readouterr().out == f"cart 1: {words}\n"
    assert trip.rows(STATES) == ["closed"]
    assert trip.queue.stats().pending == 0
    assert not two_reminders.check_out(1)


@pytest.mark.parametrize("minutes", [0, 15, 30])
def test_a_customer_who_pays_hears_no_more(travels: Travels, capsys: Printed, minutes: int) -> None:
    trip = travels(two_reminders)
    two_reminders.leave(1)
    trip.passes(f"{minutes}m")
    capsys.readouterr()
    assert two_reminders.check_out(1)
    assert trip.outcomes("1d") == []
    assert capsys.readouterr().out == ""


def test_a_delivery_is_confirmed_after_seven_days(travels: Travels) -> None:
    trip = travels(confirm_delivery)
    confirm_delivery.delivered(1)
    trip.passes("6d 23h")
    assert trip.rows(STATES) == ["delivered"]
    trip.passes("1h")
    assert trip.rows(STATES) == ["confirmed"]


def test_a_customer_gets_three_more_days_once(travels: Travels) -> None:
    trip = travels(confirm_delivery)
    confirm_delivery.delivered(1)
    trip.passes("6d")
    assert confirm_delivery.more_time(1)
    assert not confirm_delivery.more_time(1)
    trip.passes("3d 23h")
    assert trip.rows(STATES) == ["delivered"]
    trip.passes("1h")
    assert trip.rows(STATES) == ["confirmed"]


def test_more_time_at_the_moment_of_confirming_is_refused(travels: Travels) -> None:
    trip = travels(confirm_delivery)
    confirm_delivery.delivered(1)
    trip.clock.advance(7 * 86_400)
    [delivery] = trip.queue.receive("delivery.confirm")
    assert not confirm_delivery.more_time(1)
    delivery.release()
    trip.passes("0s")
    assert trip.rows(STATES) == ["confirmed"]


def test_a_group_that_is_full_does_not_wait(travels: Travels, capsys: Printed) -> None:
    trip = travels(group_purchase)
    group_purchase.start(1, needed=2)
    assert [group_purchase.join(1, who) for who in ("ada", "ada", "bob", "eve")] == [True, True, True, False]
    trip.passes("0s")
    assert capsys.readouterr().out == "ship to ada\nship to bob\n"
    assert trip.outcomes("1d") == []


def test_a_group_that_is_not_full_is_refunded(travels: Travels, capsys: Printed) -> None:
    trip = travels(group_purchase)
    group_purchase.start(1, needed=2)
    assert group_purchase.join(1, "ada")
    assert trip.outcomes("24h") == ["done", "done"]
    assert capsys.readouterr().out == "refund ada\n"
    assert not group_purchase.join(1, "bob")


def test_the_last_member_who_joins_while_the_group_is_being_closed_is_in(travels: Travels, capsys: Printed) -> None:
    trip = travels(group_purchase)
    group_purchase.start(1, needed=1)
    trip.clock.advance(86_400)
    [delivery] = trip.queue.receive("group.close")
    assert group_purchase.join(1, "ada")
    delivery.release()
    trip.passes("0s")
    assert capsys.readouterr().out == "ship to ada\n"


def test_a_sale_sells_from_its_start_to_its_end(travels: Travels, capsys: Printed) -> None:
    with freeze_time("2030-11-11 00:00") as time:
        trip = travels(limited_sale)
        starts = datetime.now(UTC) + timedelta(hours=1)
        limited_sale.announce(1, starts, starts + timedelta(hours=2), stock=2)
        assert not limited_sale.buy(1, "early")
        trip.passes("1h")
        assert [limited_sale.buy(1, who) for who in ("ada", "ada")] == [True, False]
        time.tick(timedelta(hours=2))  # no worker runs
        assert not limited_sale.buy(1, "late")
        trip.passes("0s")
    assert capsys.readouterr().out == ("sale 1 is open: put it on the front page\nsale 1 is closed: 1 go back to the shelf\n")


def test_a_sale_sells_no_more_than_there_is_and_keeps_nobody_out_who_got_nothing(travels: Travels) -> None:
    with freeze_time("2030-11-11 00:00"):
        trip = travels(limited_sale)
        limited_sale.announce(1, datetime.now(UTC), datetime.now(UTC) + timedelta(hours=1), stock=1)
        trip.passes("0s")
        assert [limited_sale.buy(1, who) for who in ("ada", "bob")] == [True, False]
        trip.executes("update sales set stock = 1")
        assert limited_sale.buy(1, "bob")


def test_a_refund_is_asked_for_until_it_is_paid(travels: Travels, capsys: Printed) -> None:
    trip = travels(refund_poll)
    trip.executes("insert into orders (number, state) values (1, 'paid')")
    refund_poll.refund(1)
    refund_poll.refund(1)
    assert trip.outcomes("29m") == ["snoozed"] * 3
    assert trip.outcomes("1m") == ["done"]
    assert capsys.readouterr().out == "order 1 is refunded\n"
    assert trip.rows(STATES) == ["refunded"]


def test_a_refund_that_takes_too_long_is_told(travels: Travels, capsys: Printed, monkeypatch: pytest.MonkeyPatch) -> None:
    trip = travels(refund_poll)
    monkeypatch.setattr(refund_poll, "bank", lambda _: "pending")
    trip.executes("insert into orders (number, state) values (1, 'paid')")
    refund_poll.refund(1)
    assert trip.outcomes("3d 1h")[-2:] == ["snoozed", "dead"]
    assert capsys.readouterr().out.startswith("order 1: call the bank")


def test_an_error_of_the_bank_counts_as_an_attempt(travels: Travels, monkeypatch: pytest.MonkeyPatch) -> None:
    trip = travels(refund_poll)

    def down(reference: str) -> str:
        raise OSError("no answer")

    monkeypatch.setattr(refund_poll, "bank", down)
    trip.queue.send_many(refund_poll.follow.topic, [Outgoing({"order": 1}, max_attempts=2)])
    assert trip.outcomes("1h", raise_errors=False) == ["retry", "dead"]
