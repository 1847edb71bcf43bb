"""The web requests of docs/locks.md: while somebody has the lock, one is answered with 423, and one goes into the queue."""

import re
from pathlib import Path
from typing import Any

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def shop() -> dict[str, Any]:
    """What the page's block of code defines."""
    [code] = [
        each
        for each in re.findall(r"```python\n(.*?)```", (ROOT / "docs/locks.md").read_text(encoding="utf-8"), re.DOTALL)
        if "FastAPI" in each
    ]
    defined: dict[str, Any] = {"__name__": "shop"}
    exec(code, defined)
    return defined


async def test_a_request_that_meets_a_lock_is_told_when_to_come_again(shop: dict[str, Any]) -> None:
    queue = shop["queue"]
    with queue.testing.in_memory():
        async with queue, httpx.AsyncClient(transport=httpx.ASGITransport(shop["app"]), base_url="http://shop") as client:
            assert (await client.post("/orders/42/pack")).json() == "packed"
            async with queue.lock("order:42", ttl="3s"):
                refused = await client.post("/orders/42/pack")
                assert (refused.status_code, refused.headers["Retry-After"]) == (423, "3")
                taken = await client.post("/orders/42/refund")
                assert (taken.status_code, taken.json()) == (202, "will be paid back")
            assert (await client.post("/orders/43/refund")).json() == "paid back"
            [handled] = await queue.testing.advance("5s")
            assert (handled.topic, handled.outcome) == ("order.refund", "done")
