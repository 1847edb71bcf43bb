"""Changes of many messages of which a later page fails: the error says how many were done before."""

from collections.abc import Callable
from typing import Any

import pytest

from bide import ConfigError, OutcomeUnknown, QueueFull, Unavailable, Where

COUNT = 2_500
BROKEN = Where(error="broken")
REFUSALS = [ConfigError, QueueFull, Unavailable]


async def fail_third(queue: Any, verb: str, error: Exception) -> None:
    """The third call of a verb of the engine is refused."""
    inner = getattr(queue, "inner", queue)
    engine = inner.session.engine()
    if inner is queue:
        engine = await engine
    call: Callable[..., Any] = getattr(engine, verb)
    calls: list[None] = []

    def begin(*args: Any, **options: Any) -> Any:
        calls.append(None)
        if len(calls) >= 3:
            raise error
        return call(*args, **options)

    setattr(engine, verb, begin)


async def dead_letters(queue: Any) -> None:
    await queue.send_many("t", range(COUNT))
    while found := await queue.receive("t", limit=1_000):
        for each in found:
            await each.bury("broken")


@pytest.mark.parametrize("kind", REFUSALS)
@pytest.mark.parametrize(
    ("verb", "how", "done"),
    [
        ("requeue", {}, 2_000),
        ("requeue", {"where": BROKEN}, 400),
        ("purge", {"state": "dead"}, 2_000),
        ("purge", {"state": "dead", "where": BROKEN}, 400),
    ],
)
async def test_how_many_were_done_is_told(queue: Any, kind: type[Exception], verb: str, how: dict[str, Any], done: int) -> None:
    await dead_letters(queue)
    await fail_third(queue, verb, kind("no more"))
    with pytest.raises(OutcomeUnknown, match=f"^{done:,} messages done, then: no more$") as unknown:
        await getattr(queue, verb)("t", **how)
    assert type(unknown.value.__cause__) is kind
    assert (await queue.stats("t")).dead == COUNT - done


async def test_how_many_were_cancelled_is_told(queue: Any) -> None:
    await queue.send_many("t", range(COUNT))
    await fail_third(queue, "cancel", ConfigError("no more"))
    with pytest.raises(OutcomeUnknown, match=r"^400 messages done, then: no more$"):
        await queue.cancel_all("t")
    assert (await queue.stats("t")).ready == COUNT - 400
