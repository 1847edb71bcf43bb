"""Batches of more than 1,000 of which a later part is refused: whatever the error is, what was done before it is told."""

from typing import Any

import pytest

from bide import BadMessage, CancelResult, ConfigError, OutcomeUnknown, PartlySent, QueueFull, Unavailable
from bide.errors import BideError, EngineError, SchemaMismatch, Unsupported
from bide.queue import topic_rules
from bide.queue.deliveries import internals
from tests.queue.test_unconfirmed import COUNT, be_short, held_by

REFUSALS: list[type[BideError]] = [ConfigError, Unsupported, BadMessage, EngineError]
REFUSALS += [each for each in EngineError.__subclasses__() if each is not PartlySent]
every_refusal = pytest.mark.parametrize("kind", REFUSALS)
NOTHING_DONE = (ConfigError, Unsupported, BadMessage, Unavailable, QueueFull, SchemaMismatch)


@every_refusal
@pytest.mark.parametrize("how", [{}, {"wait": 10}])
async def test_what_was_sent_before_it_is_told(queue: Any, kind: type[BideError], how: dict[str, int]) -> None:
    await be_short(queue, "put", False, kind("no more"))
    with pytest.raises(PartlySent, match=r"^1,000 of 2,500 messages were accepted, then: no more$") as partly:
        await queue.send_many("t", range(COUNT), **how)
    assert type(partly.value.error) is kind
    assert len(partly.value.sent) == (await queue.stats("t")).ready == 1_000


@every_refusal
@pytest.mark.parametrize("how", [{}, {"wait": 0}])
async def test_the_room_of_what_was_surely_not_sent_is_free_again(
    queue: Any, monkeypatch: pytest.MonkeyPatch, kind: type[BideError], how: dict[str, int]
) -> None:
    monkeypatch.setattr(topic_rules, "OFTEN", 60.0)  # no other count shows what is free
    monkeypatch.setattr(topic_rules, "SELDOM", 60.0)
    getattr(queue, "inner", queue).topic("t", most_pending=COUNT)
    await queue.send("t")
    await be_short(queue, "put", kind("no more"))
    with pytest.raises(kind, match=r"^no more$"):
        await queue.send_many("t", range(1_000), **how)
    if issubclass(kind, NOTHING_DONE):
        await queue.send_many("t", range(COUNT - 1))
    with pytest.raises(QueueFull):
        await queue.send_many("t", range(COUNT - 1))


@every_refusal
async def test_what_was_cancelled_before_it_is_told(queue: Any, kind: type[BideError]) -> None:
    sent = await queue.send_many("t", range(COUNT))
    await be_short(queue, "cancel", False, kind("no more"))
    with pytest.raises(OutcomeUnknown, match=r"^1,000 of 2,500 were done, then: no more$") as unknown:
        await queue.cancel_many(sent)
    assert unknown.value.answers == [CancelResult.CANCELLED] * 1_000 + [None] * 1_500
    assert (await queue.stats("t")).pending == 1_500


@every_refusal
@pytest.mark.parametrize("verb", ["ack_many", "retry_many"])
async def test_what_was_ended_before_it_is_told(queue: Any, kind: type[BideError], verb: str) -> None:
    held = await held_by(queue)
    await be_short(queue, "settle", False, kind("no more"))
    with pytest.raises(OutcomeUnknown, match=r"^1,000 of 2,500 were done, then: no more$") as unknown:
        await getattr(queue, verb)(held)
    assert unknown.value.answers == [True] * 1_000 + [None] * 1_500
    assert [internals(each).ended for each in held] == [True] * 1_000 + [False] * 1_500
