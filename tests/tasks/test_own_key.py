"""A handler that sends under the key of its own message means the next one."""

from collections.abc import Callable
from typing import Any

import pytest

from bide import Exists, Outgoing, Queue, current, steps

Do = Callable[[Any], Any]


def sync_of(queue: Any) -> Queue:
    found: Queue = queue if isinstance(queue, Queue) else queue.sync
    return found


@pytest.mark.parametrize("if_exists", ["keep", "error", "replace", "later"])
def test_a_task_that_sends_itself_again_under_its_key_goes_on(queue: Any, do: Do, if_exists: Any) -> None:
    outcomes: list[str] = []

    def chime() -> None:
        outcomes.append(task.after("1m", key="hourly", if_exists=if_exists).send().outcome)

    task = queue.task("chime")(chime).on(sync_of(queue))
    task.options(key="hourly").send()
    assert len(do(queue.testing.advance("10m"))) == 11
    assert outcomes == ["created"] * 11
    assert task.get(key="hourly").state == "scheduled"


def test_an_async_handler_sends_itself_again_too(queue: Any, do: Do) -> None:
    aio = queue.aio if isinstance(queue, Queue) else queue

    async def chime() -> None:
        await task.after("1m", key="hourly").send()
        [kept] = await aio.send_many("chime", [Outgoing({}, key="hourly")])
        assert kept.outcome == "kept", "there were two next ones"

    task = queue.task("chime")(chime).on(aio)
    do(queue.task("chime")(chime).options(key="hourly").send())
    assert [each.outcome for each in do(queue.testing.advance("10m"))] == ["done"] * 11


def test_a_handler_that_fails_after_it_has_sent_the_next_one_makes_no_second_chain(queue: Any, do: Do) -> None:
    attempts: list[tuple[str | None, int]] = []

    def chime() -> None:
        attempts.append((current().key, current().attempt))
        task.after("1m", key="hourly").send()
        if len(attempts) == 1:
            raise OSError("no bell")

    task = queue.task("chime", backoff=steps("5s"))(chime).on(sync_of(queue))
    task.options(key="hourly").send()
    do(queue.testing.advance("150s", raise_errors=False))
    assert attempts == [("hourly", 1), (None, 2), ("hourly", 1), ("hourly", 1)]
    assert sync_of(queue).stats("chime").pending == 1


def test_the_key_of_another_message_means_that_one(queue: Any, do: Do) -> None:
    sent: list[str] = []

    def first() -> None:
        sent.append(task.options(key="other").send().outcome)
        with pytest.raises(Exists):
            task.options(key="other", if_exists="error").send()
        sent.append(sync_of(queue).send("news", key="own").outcome)

    task = queue.task("mail")(first).on(sync_of(queue))
    other = sync_of(queue).send("mail", key="other", delay="1h")
    sync_of(queue).send("news", key="own", delay="1h")
    task.options(key="own").send()
    do(queue.testing.advance(0))
    assert sent == ["kept", "kept"]
    assert do(queue.get(other)).state == "scheduled"


def test_what_goes_on_after_its_message_has_ended_is_nobodys_handler(queue: Any, do: Do) -> None:
    async def chime() -> None:
        await current().retry("1h")
        kept = await queue_of.send("chime", key="hourly")
        assert kept.outcome == "kept"

    queue_of = queue.aio if isinstance(queue, Queue) else queue
    do(queue.task("chime")(chime).options(key="hourly").send())
    assert [each.outcome for each in do(queue.testing.advance(0))] == ["ended"]
