"""The contract suite and the model, by a user with a worker's rights alone, on a server that forgets its scripts ten times
a second.
"""

import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bide.engines.base import Settings
from bide.engines.redis import CAPABILITIES, source
from bide.engines.redis.doctor import rights
from bide.engines.registry import Source
from bide.testing.contract import EngineContract
from tests.model.hypothesis_rules import check_engine
from tests.model.turns import BUDGET, COLOURS, LONG, by_turns
from tests.servers.programs import needs_program
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.server

FORGETS = 0.1  # seconds


@pytest.fixture(scope="module")
def forgetful() -> Iterator[RedisServer]:
    """Its `bide-worker` has what is printed for one, in any namespace."""
    needs_program("redis-server")
    over = threading.Event()
    with RedisServer() as server:

        def forget() -> None:
            with server.client() as client:
                while not over.wait(FORGETS):
                    client.script_flush()

        with server.client() as client:
            line = rights.line("worker", "bide").replace("CHANGE-ME", "word").replace("~{bide:*", "~{*")
            client.execute_command(*line.split())
            client.acl_log_reset()
        thread = threading.Thread(target=forget)
        thread.start()
        try:
            yield server
        finally:
            over.set()
            thread.join()


@pytest.fixture
def url(forgetful: RedisServer) -> Iterator[str]:
    with forgetful.client() as client:
        client.flushall()
        yield forgetful.url.replace("://", "://bide-worker:word@")
        # What the driver asks first, as Redis 6.2 calls it and as later ones do
        assert {each["object"] for each in client.acl_log()} <= {"client", "client|setinfo"}


@pytest.mark.variant("redis")
class TestForgetful(EngineContract):
    capabilities = CAPABILITIES
    colours = COLOURS if LONG else ("async",)

    @pytest.fixture
    def make_source(self, url: str) -> Callable[..., Source]:
        def make(**settings: Any) -> Source:
            return source(Settings(url=url, **settings))

        return make


@by_turns([2])
def test_a_worker_on_a_forgetful_server_does_what_the_model_does(url: str, colour: str, seed: int) -> None:
    numbers = itertools.count()

    def make(**settings: Any) -> Source:
        return source(Settings(url=url, namespace=f"check-{next(numbers)}", **settings))

    check_engine(make, colour=colour, examples=30, steps=60, seed=seed, budget=BUDGET)
