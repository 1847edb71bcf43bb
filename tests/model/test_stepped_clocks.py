"""The clock of a server is stepped forward and back under a queue: no instant comes before that clock shows it."""

import functools
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bide.clock import moment
from bide.prove import History, Recorded, check
from tests.model.stepped import HOUR, PATIENCE, TOPIC, Place, be_ahead


def come_until(place: Place, wanted: set[str], patience: float = PATIENCE) -> None:
    """Receive until all these have come, none before its instant."""
    left, give_up = set(wanted), time.monotonic() + patience
    while left:
        assert time.monotonic() < give_up, f"{left} did not come"
        for each in place.queue.receive(TOPIC, limit=10, wait=0.2):
            early = each.body[1] - place.wall() if each.body[0] == "at" else 0
            assert early <= 0, f"{early} ms too early"
            left.discard(each.id)
            each.ack()


def test_an_instant_that_is_sent_after_the_clock_was_set_back_does_not_come_before_the_clock_shows_it(exact: Place) -> None:
    be_ahead(exact, HOUR)
    id = exact.send_at(exact.wall() + 1_200)
    come_until(exact, {id})


def test_an_instant_that_was_sent_before_the_clock_was_ahead_does_not_come_before_the_clock_shows_it(exact: Place) -> None:
    id = exact.send_at(exact.wall() + 2_000)
    be_ahead(exact, HOUR)
    come_until(exact, {id})


def test_an_instant_that_a_message_is_rescheduled_to_does_not_come_before_the_clock_shows_it(exact: Place) -> None:
    be_ahead(exact, HOUR)
    wall = exact.wall() + 1_200
    id = str(exact.queue.send(TOPIC, ["at", wall], delay="1h"))
    assert exact.queue.reschedule(id, at=moment(wall))
    come_until(exact, {id})


def test_a_delay_is_no_instant_and_takes_at_most_twice_as_long_after_the_clock_was_set_back(place: Place) -> None:
    be_ahead(place, HOUR)
    began = time.monotonic()
    id = place.send_after(1.0)
    come_until(place, {id})
    passed = time.monotonic() - began
    assert passed >= 0.999
    assert passed < 2 + PATIENCE / 3  # not the hour


def test_a_delay_does_not_wait_for_the_instants_that_a_clock_behind_holds_back(exact: Place) -> None:
    be_ahead(exact, HOUR)
    wall = exact.wall() + 1_200
    held = {exact.send_at(wall + number) for number in range(20)}
    come_until(exact, {exact.send_after(0.0)})
    come_until(exact, held)


def test_an_instant_that_a_clock_behind_holds_back_comes_soon_after_that_is_set_forward(exact: Place) -> None:
    be_ahead(exact, HOUR)
    id = exact.send_at(exact.wall() + 1_800_000)
    assert exact.queue.receive(TOPIC) == []
    exact.clock.step(HOUR / 2 + 1)
    come_until(exact, {id}, patience=4 * PATIENCE)


def test_an_instant_comes_when_a_step_forward_reaches_it(place: Place) -> None:
    id = place.send_at(place.wall() + 3_600_000)
    assert place.queue.receive(TOPIC) == []
    place.clock.step(HOUR + 1)
    come_until(place, {id})


@pytest.mark.parametrize("order", ["at delay", "delay at"])
def test_the_later_of_an_instant_and_a_delay_is_early_for_neither(order: str, exact: Place) -> None:
    be_ahead(exact, HOUR)
    wall, until = exact.wall() + 200, time.monotonic() + 4
    for given in order.split():
        options: dict[str, Any] = {"at": moment(wall)} if given == "at" else {"delay": 4}
        exact.queue.send(TOPIC, ["later"], key="k", if_exists="later", **options)
    exact.clock.step(HOUR)
    assert len(exact.queue.receive(TOPIC, wait=PATIENCE)) == 1
    assert time.monotonic() > until - 2  # engine time makes up for the moments in which it went at half its speed
    assert exact.wall() >= wall


@pytest.mark.parametrize("seed", [1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 10))])
def test_no_lot_of_steps_brings_an_instant_early_or_loses_one(seed: int, exact: Place, tmp_path: Path) -> None:
    draw = random.Random(seed)
    path, left = tmp_path / "steps.jsonl", set[str]()

    def set_clock(change: Callable[[], None]) -> None:
        with history.setting_clock() as setting:
            change()
            setting.ok(exact.wall())

    def receive(wait: float) -> None:
        for each in queue.receive(TOPIC, limit=10, wait=wait):
            left.discard(each.plain.id)
            each.ack()

    with History(path) as history:
        queue = Recorded(exact.queue, history)
        set_clock(exact.clock.set_right)
        for _ in range(60):
            what = draw.choice(["at", "at", "after", "step", "right", "receive", "receive"])
            if what == "at":
                left.add(queue.send(TOPIC, at=moment(exact.wall() + draw.choice([1, 100, 500, 1_000]))).id)
            elif what == "after":
                left.add(queue.send(TOPIC, delay=draw.choice([0, 0.1, 0.5])).id)
            elif what == "step":
                set_clock(functools.partial(exact.clock.step, draw.choice([-HOUR, -2, -0.3, 0.3, 2, HOUR])))
            elif what == "right":
                set_clock(exact.clock.set_right)
            else:
                receive(draw.choice([0, 0.1]))
        set_clock(functools.partial(exact.clock.step, 10 * HOUR))
        give_up = time.monotonic() + PATIENCE
        while left and time.monotonic() < give_up:
            receive(0.2)
        queue.look()
    report = check([path])
    assert report.valid is True, report
