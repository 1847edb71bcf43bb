"""`bide adopt redis-zset`: members of a sorted set become messages, at their times."""

import json
import math
import time

import redis

from tests.adopt.reading import everything
from tests.cli.running import Bide

HOUR = 3600


def test_members_become_messages_at_the_instants_of_their_scores(bide: Bide, old: redis.Redis, redis_url: str) -> None:
    now = time.time()
    scores = {json.dumps({"order": number}): now + HOUR + number / 7 for number in range(2_500)}
    old.zadd("delayed", scores)
    ended = bide("adopt", "redis-zset", "delayed", "--topic", "order.cancel", "--source", redis_url, "--json")
    assert (ended.code, ended.err) == (0, "")
    assert json.loads(ended.out) == {"adopted": 2_500, "resumed": 0, "gone": 0, "held": 0, "refused": {}}
    assert old.keys("*delayed*") == []
    found = {each.body["order"]: each.due for each in everything("order.cancel")}
    assert found == {json.loads(member)["order"]: math.ceil(score * 1000) for member, score in scores.items()}
