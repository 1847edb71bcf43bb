"""Messages spread over all the calendars of a topic: dense and sparse, many of one instant, some gone, some moved."""

import random
from collections.abc import Sequence

from bide.engines.base import NewMessage
from bide.testing.contract.bench import Bench

HOUR, DAY = 3_600_000, 86_400_000
SPANS = (0, 1, 500, 40_000, 70_000, HOUR, HOUR + 30_000, DAY, 40 * DAY)


async def _put_dues(bench: Bench, topic: str, dues: Sequence[int], draw: random.Random) -> dict[str, int]:
    """Messages of all priorities; ids and due times in the order of sending."""
    found: dict[str, int] = {}
    for i in range(0, len(dues), 1_000):
        batch = [NewMessage(topic, b"x", at=due, level=draw.randrange(3)) for due in dues[i : i + 1_000]]
        found |= {sent.id: sent.due for sent in await bench.put_all(*batch)}
    return found


async def put_spread(bench: Bench, topic: str, count: int, seed: int) -> dict[str, int]:
    """Ids and due times of those that wait."""
    draw = random.Random(seed)
    begin = bench.now
    dues = [begin + draw.choice(SPANS) + draw.randrange(draw.choice((1, 3, 2_000, 70_000, HOUR))) for _ in range(count)]
    dues += [begin + 45_000] * (count // 5)
    found = await _put_dues(bench, topic, dues, draw)
    ids = list(found)
    for id in draw.sample(ids, count // 6):
        await bench.cancel(id=id)
        del found[id]
    for id in draw.sample(list(found), count // 8):
        delay = draw.choice(SPANS) + draw.randrange(5)
        await bench.reschedule(id, delay=delay)
        found[id] = bench.now + delay
    return found
