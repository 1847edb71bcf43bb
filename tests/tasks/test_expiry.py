"""A task's own `expires_in`: however its messages are sent, and the shorter one of it and the send's own counts."""

from datetime import UTC, datetime
from typing import Any

import pytest

from bide import BadTime, BadTopic, ManualClock, Outgoing

HOUR = 3_600_000


def life(do: Any, queue: Any, sent: Any) -> int | None:
    info = do(queue.get(sent))
    return None if info.expires is None else info.expires - info.due


@pytest.fixture(params=["memory", "sqlite"])
def queue(request: pytest.FixtureRequest, make_queue: Any, clock: ManualClock, tmp_path: Any) -> Any:
    return make_queue("memory://" if request.param == "memory" else f"sqlite:///{tmp_path}/bide.db", clock=clock)


def test_a_message_of_the_task_expires_whichever_way_it_is_sent(queue: Any, do: Any) -> None:
    @queue.task("mail", aliases=["post"], expires_in="1h")
    def mail(n: int) -> None: ...

    many = do(mail.send_many([{"n": 1}]))
    others = do(queue.send_many("mail", [{"n": 1}, Outgoing({"n": 2}, delay="5m")]))
    one = [
        do(mail.send(n=1)),
        do(mail.after("1d").send(n=1)),
        do(queue.send("mail", {"n": 1})),
        do(queue.send("post", {"n": 1})),
    ]
    assert [life(do, queue, each) for each in [*many, *others, *one]] == [HOUR] * 7
    # And no other does
    assert life(do, queue, do(queue.send("letter"))) is None


def test_the_shorter_one_of_the_task_and_the_send_counts(queue: Any, do: Any) -> None:
    @queue.task("mail", expires_in="1h")
    def mail() -> None: ...

    sends = [mail.options(expires_in="2h").send(), mail.options(expires_in="30m").send(), queue.send("mail", expires_in="3h")]
    sent = [*map(do, sends), *do(queue.send_many("mail", [Outgoing(expires_in="1m"), Outgoing(expires_in="2h")]))]
    assert [life(do, queue, each) for each in sent] == [HOUR, HOUR // 2, HOUR, 60_000, HOUR]


def test_what_nobody_received_in_time_is_dropped(queue: Any, do: Any, clock: ManualClock) -> None:
    called: list[int] = []

    @queue.task("mail", expires_in="1h")
    def mail(n: int) -> None:
        called.append(n)

    do(mail.after("1m").send(n=1))
    do(mail.after("30m").send(n=2))
    clock.advance(3_660)
    assert [each.outcome for each in do(queue.testing.advance(0))] == ["done"]
    assert called == [2]


def test_a_queue_that_does_not_have_the_task_is_sent_the_same(queue: Any, make_queue: Any, do: Any, clock: ManualClock) -> None:
    @queue.task("mail", expires_in="1h")
    def mail() -> None: ...

    other = make_queue(clock=clock)
    sent = [do(mail.on(other).send()), do(mail.on(other).options(expires_in="2h").send()), *do(mail.on(other).send_many([{}]))]
    assert [life(do, other, each) for each in sent] == [HOUR] * 3


def test_a_program_without_the_task_says_it_for_the_topic(queue: Any, do: Any) -> None:
    queue.topic("mail", expires_in="1h")
    assert life(do, queue, do(queue.send("mail"))) == HOUR
    # And the task may say less, but not more
    queue.task("mail", expires_in="2h")(lambda: None)
    assert life(do, queue, do(queue.send("mail"))) == HOUR
    queue.topic("mail", expires_in="3h")
    assert life(do, queue, do(queue.send("mail"))) == 2 * HOUR
    # And the last word counts
    queue.topic("mail")
    queue.topic("post", expires_in="1h")
    queue.topic("post")
    assert life(do, queue, do(queue.send("mail"))) == 2 * HOUR
    assert life(do, queue, do(queue.send("post"))) is None


def test_a_task_that_is_defined_anew_says_it_anew(queue: Any, do: Any) -> None:
    def define(**options: Any) -> None:
        queue.task("mail", **options)(mail)

    def mail() -> None: ...

    define(expires_in="1h")
    define()
    assert life(do, queue, do(queue.send("mail"))) is None


def test_what_a_schedule_plans_does_not_expire(queue: Any, do: Any, clock: ManualClock) -> None:
    called: list[datetime] = []

    @queue.every("1m", expires_in="10s")
    def sweep() -> None:
        called.append(clock.now())

    do(queue.testing.advance("1m"))
    clock.advance(3_600)
    do(queue.testing.advance("1m"))
    assert len(called) == 3  # once for all that were missed, and the chain goes on
    assert clock.now().tzinfo is UTC


def test_a_life_of_no_time_is_refused_where_it_is_written(queue: Any) -> None:
    with pytest.raises(BadTime, match="expires_in is 0"):
        queue.task("mail", expires_in=0)(lambda: None)
    with pytest.raises(BadTime, match="expires_in is 0"):
        queue.topic("mail", expires_in=0)
    with pytest.raises(BadTopic):
        queue.topic("two words", expires_in=1)
