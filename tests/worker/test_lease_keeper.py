"""A supervisor's watch over a process: it renews for one that can't, whatever the engine does meanwhile."""

import asyncio
from typing import Any

import pytest

from bide import AsyncQueue, Unavailable
from bide.worker.claim_log import ClaimLog
from bide.worker.recovery import LeaseKeeper
from tests.worker.faults import Faults

WHATEVER = [Unavailable("not now"), RuntimeError("what nobody had thought of"), SystemExit(3), asyncio.CancelledError()]
LEASE = 100  # milliseconds


@pytest.mark.parametrize("verb", ["claim", "extend"])
@pytest.mark.parametrize("error", WHATEVER, ids=repr)
async def test_leases_are_renewed_for_a_silent_process_after_whatever_the_engine_raised(
    memory: AsyncQueue, soon: Any, caplog: Any, error: BaseException, verb: str
) -> None:
    claim_log = ClaimLog.new(10)
    engine = await memory.session.engine()
    await memory.send("a", {})
    slot, request = claim_log.begin()
    [claimed] = (await engine.claim(["a"], 1, 3_600_000, request=request)).messages
    claim_log.hold(slot, 1)
    faults, left, renewed = Faults(memory), [error], asyncio.Event()

    def broken_at_first(which: str) -> Any:
        async def around(call: Any, asked: Any) -> Any:
            if which == verb and left:
                raise left.pop()
            answer = await call()
            if which == "extend":
                assert [hold.id for hold in asked[0]] == [claimed.id]
                renewed.set()
            return answer

        return around

    faults.around |= {which: broken_at_first(which) for which in ("claim", "extend")}
    watching = asyncio.create_task(LeaseKeeper(claim_log, LEASE).until_frozen(faults.aio()))
    await soon(renewed.wait())
    assert not watching.done()
    assert not left
    assert "could not be renewed for it, which is tried again" in caplog.text
    watching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await watching
    claim_log.close()
