"""The way back of docs/adopt.md: the script that is shown there is run."""

import json
import re
from pathlib import Path
from typing import Any

import redis

from bide import Queue
from tests.adopt.reading import URL, everything
from tests.cli.running import Bide

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "adopt.md").read_text(encoding="utf-8")


def test_adopted_messages_go_back_at_their_times(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    members = {json.dumps({"order": number}): 4_000_000_000.25 + number for number in range(2_300)}
    old.zadd("delayed", members)
    assert bide("adopt", "redis-zset", "delayed", "--topic", "order.cancel", "--source", redis_url).code == 0
    [script] = re.findall(r"```py\n(.*?)```", PAGE, re.DOTALL)
    with Queue(URL) as queue:
        [running] = queue.send_many("order.cancel", [{"order": -1}])
    ended: dict[str, Any] = {"OLD_URL": redis_url, "BIDE_URL": URL}
    exec(script, ended)
    ended["old"].close()
    back: Any = old.zrange("delayed", 0, -1, withscores=True)
    assert dict(back) == {key.encode(): value for key, value in members.items()}
    assert [each.id for each in everything("order.cancel")] == [running.id]
