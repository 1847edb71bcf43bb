"""What handlers send in the background is sent before their worker's process ends."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.worker.processes import Shop, open_shop

HANDLERS = """
from bide.queue.later import Later
send = Later._send
Later._send = lambda *args: (time.sleep(0.6), send(*args))[1]  # an engine that is slow

@queue.task("wait")
async def wait():
    say("wait")
    while not gone("go"):
        await asyncio.sleep(0.01)
    for n in range(200):
        queue.later("later", n)
"""


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    with open_shop(tmp_path) as made:
        made.write(HANDLERS)
        yield made


@pytest.mark.parametrize("options", [(), ("--processes", "1")], ids=["alone", "supervised"])
def test_a_worker_that_is_stopped_sends_what_its_handlers_have_taken(shop: Shop, options: tuple[str, ...]) -> None:
    shop.queue.send("wait")
    worker = shop.start(*options)
    shop.said("wait")
    worker.children()
    worker.send()
    shop.touch("go")
    assert worker.wait() == 0, worker.err
    assert shop.counts("later").ready == 200
    assert "lost" not in worker.err
