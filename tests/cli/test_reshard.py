"""`bide reshard`, as a user calls it."""

import json

import pytest

from bide import Queue
from bide.engines.redis import resharding
from tests.cli.running import Bide


def test_a_queue_is_spread_over_more_shards(bide: Bide, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with Queue(redis_url) as queue:
        sent = queue.send("t", 1, delay="1h")
    told = bide("reshard", "3", "--no-wait", "--url", redis_url)
    assert (told.code, told.err) == (0, "New messages go to 3 new shards.\n")
    assert told.out == "New messages go to 3 shards.\nLeft in 1 old shard: 1 message and 0 dead letters.\n"
    as_json = json.loads(bide("reshard", "--json", "--url", redis_url).out)
    assert as_json["shards"] == 3
    assert {name: as_json["old"][name] for name in ("shards", "pending", "dead")} == {"shards": 1, "pending": 1, "dead": 0}
    with Queue(redis_url) as queue:
        queue.cancel(sent.id)
    assert "They can be given up in " in bide("reshard", "--url", redis_url).out
    monkeypatch.setattr(resharding, "REMEMBERED", 0)
    again = bide("reshard", "3", "--url", redis_url)
    assert (again.code, again.out, again.err) == (0, "All messages are in 3 shards.\n", "")


def test_who_writes_another_number_into_the_url_is_told_of_this_command(bide: Bide, redis_url: str) -> None:
    with Queue(redis_url) as queue:
        queue.send("t", 1)
    told = bide("send", "t", "1", "--url", f"{redis_url}?shards=4")
    assert "are spread over 1 shard: write shards=1 in the URL. Then `bide reshard` can give them another number." in told.err


def test_only_redis_has_shards(bide: Bide) -> None:
    bide("send", "t", "1")
    told = bide("reshard", "3")
    assert told.code != 0
    assert "Only Redis queues have shards" in told.err
