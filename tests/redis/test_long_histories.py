"""Two clients of one server through thousands of steps beside the model, with small bounds; in the end nothing is left."""

import hashlib
from collections.abc import Callable
from typing import Any

import pytest
import redis

from bide.engines.redis.aio import calls as aio
from bide.engines.redis.script import Script
from bide.engines.redis.sync import calls as sync
from bide.engines.registry import Source
from tests.contract.test_long_histories import SHRINK, all_verbs_were_asked, of_seeds, one_seed
from tests.model.expected import Divergence
from tests.model.long_history import LongHistory, check_long_history
from tests.model.runner import Runner
from tests.redis.invariants import invariants_hold
from tests.redis.keyspace import names, note_as_before
from tests.redis.small import places
from tests.servers.redis import RedisServer

CONSTANT = {"meta"}
PASSING = ("lanes", "ops", "u")  # records of connections, of operations, and of keys that are sent once in a period


def left_in(server: RedisServer) -> set[str]:
    with server.client() as client:
        return {name.partition("}:")[2] for name in names(client) if not ends_by_itself(client, name)}


def ends_by_itself(client: redis.Redis, name: str) -> bool:
    return name.partition("}:")[2].partition(":")[0] in PASSING and client.ttl(name) > 0


Change = Callable[[redis.Redis], object]


def play(url: str, server: RedisServer, seed: int, change: Change | None = None, **how: Any) -> LongHistory:
    """`change` may change how the store is laid out now and then, and not what is in it."""
    make = places(url)

    def anew(*, dead_for: int, dead_max: int) -> Source:
        with server.client() as client:
            client.flushall()  # of a longer history that failed
        return make(dead_for=dead_for, dead_max=dead_max)

    def left(_: Runner) -> None:
        assert left_in(server) == CONSTANT

    def watch(_: Runner) -> None:
        with server.client() as client:
            invariants_hold(client)
            if change:
                change(client)
                invariants_hold(client)

    return check_long_history(anew, seed=seed, left=left, watch=watch, shrink=SHRINK, **how)


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("small_scripts")
@one_seed
def test_a_long_history_of_small_buckets(redis_url: str, redis_server: RedisServer, seed: int) -> None:
    all_verbs_were_asked(play(redis_url, redis_server, seed))


@pytest.mark.timeout(900)
@of_seeds
def test_a_long_history_of_buckets_as_they_are(redis_url: str, redis_server: RedisServer, seed: int) -> None:
    all_verbs_were_asked(play(redis_url, redis_server, seed, steps=1_000))


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("alike", "small_scripts")
@of_seeds
def test_a_long_history_of_three_shards(redis_url: str, redis_server: RedisServer, seed: int) -> None:
    all_verbs_were_asked(play(f"{redis_url}?shards=3", redis_server, seed, steps=1_000))


@pytest.mark.timeout(900)
@pytest.mark.usefixtures("alike", "small_scripts")
@one_seed
def test_a_long_history_in_which_a_release_before_notes_expiries(redis_url: str, redis_server: RedisServer, seed: int) -> None:
    def note(client: redis.Redis) -> None:
        for prefix in {name.partition("}:")[0] for name in names(client)}:
            note_as_before(client, prefix + "}:")

    all_verbs_were_asked(play(f"{redis_url}?shards=3", redis_server, seed, note, steps=1_000))


@pytest.mark.usefixtures("small_scripts")
def test_a_long_history_finds_a_cursor_that_goes_too_far(
    redis_url: str, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So messages of a slot were once lost: it was passed over before all of them were taken."""
    right, wrong = "select(3, location(ids[i])) - n, i - 1", "select(3, location(ids[i])) - n + 1, i"
    planted = dict(vars(aio)["scripts"]())
    text = planted["claim"].text.replace(right, wrong)
    assert text != planted["claim"].text
    planted["claim"] = Script("claim", text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
    for colour in (aio, sync):
        monkeypatch.setattr(colour, "scripts", lambda: planted)
    with pytest.raises(Divergence):
        play(redis_url, redis_server, 1, steps=600)
